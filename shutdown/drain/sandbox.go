package drain

import (
	"errors"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// begin starts to stop containers of a pod in phase i.
func (d *Drain) begin(i int, p *pod, listed runtime.Pod, containers []target, end time.Time) {
	p.listed, p.phase, p.end, p.kept = listed, i, end, false
	p.stops++
	for _, t := range containers {
		p.container(t.ID).pendingSince = time.Time{}
	}
	d.progress.started++
	d.progress.inPhase++
	d.lists.settled = false
	k := p.key
	d.calls.group.Go(func() { d.calls.stopPod(i, k, containers, end) })
}

// release continues with pods whose sandboxes waited for containers that have ended by themselves.
func (d *Drain) release() {
	for _, p := range d.pods {
		if p.kept && !p.pending() {
			if p.phase == d.progress.phase {
				d.progress.inPhase++
			}
			d.finish(p, p.phase)
		}
	}
}

// finish continues with a pod when all started stops of its containers have ended: it waits for
// pending stops, or goes on to the sandbox. After a cancellation, a partly stopped pod is left as it
// is.
func (d *Drain) finish(p *pod, phase int) {
	ended := d.endedAt(p)
	p.kept = false
	switch {
	case p.pending():
		p.kept = true
	case d.life.isCancelled():
		p.noteOver(ended)
	case p.resort:
		p.again = true
	case p.failed():
		p.resort, p.again = true, false
		d.progress.started++
		d.lists.settled = false
		d.tearDown(p, phase, true)
		return
	default:
		p.noteOver(ended)
		if !slices.Contains(d.progress.queue, p) {
			d.progress.queue = append(d.progress.queue, p)
		}
	}
	d.countPhase(phase)
}

// countPhase counts down what its phase waits for.
func (d *Drain) countPhase(phase int) {
	if phase == d.progress.phase {
		d.progress.inPhase--
		d.progress.noneWaiting = d.progress.noneWaiting || d.progress.inPhase == 0
	}
	d.tearQueued()
}

// releaseSandboxes tears down the sandboxes that waited for the containers of the phase.
func (d *Drain) releaseSandboxes() {
	d.progress.noneWaiting = true
	d.tearQueued()
}

// tearQueued tears down the next sandboxes. While containers of the phase are stopping, it does one
// at a time: a teardown costs a runtime as much as a stop, and the grace periods are running. A
// sandbox stays if a new container has appeared in it.
func (d *Drain) tearQueued() {
	if d.life.ended(d.calls.ctx) {
		return
	}
	d.progress.queue = slices.DeleteFunc(d.progress.queue, func(p *pod) bool {
		switch {
		case p.busy():
			return true // and comes again, or goes with that
		case p.pending():
			p.kept = true
			return true
		case p.tears(), !d.progress.noneWaiting && p.phase == d.progress.phase && d.any(func(p *pod) bool { return p.tears() && p.phase == d.progress.phase }):
			return false
		}
		d.tearDown(p, p.phase, false)
		return true
	})
}

// tearDown tears the sandbox of a pod down.
func (d *Drain) tearDown(p *pod, phase int, last bool) {
	p.tearing++
	k, what, end := p.key, p.listed, p.end
	d.calls.group.Go(func() { d.calls.tearDown(phase, k, what, end, last) })
}

// noteTeardown handles the result of a teardown. A failed last resort is repeated if other containers
// of its pod have ended meanwhile.
func (d *Drain) noteTeardown(r result) {
	p := d.pod(r.pod)
	p.tearing--
	if !r.teardown.last {
		d.tearQueued()
		return
	}
	p.resort = false
	switch {
	case r.teardown.err == nil: // with the sandbox, everything in it has ended
		p.kept = false
		for _, c := range p.containers {
			c.pendingSince = time.Time{}
			if c.state == Failed {
				d.become(c, Killed)
			}
		}
	case d.leaving():
		p.noteUnrequested(nil)
		return
	case p.again && p.stops == 0:
		d.finish(p, r.phase)
		return
	}
	if p.stops == 0 {
		p.noteOver(time.Now())
	}
	d.countPhase(r.phase)
}

// leaving reports whether this process ends. Failures of its calls then mean nothing.
func (d *Drain) leaving() bool { return Closed(d.life.leaving) || d.calls.ctx.Err() != nil }

// noteEnds handles the results of a pod's stops. If this process ends, only those without a requested
// stop count.
func (d *Drain) noteEnds(r result) {
	p := d.pod(r.pod)
	p.stops--
	if d.leaving() {
		p.noteUnrequested(slices.DeleteFunc(r.ends, func(e containerEnd) bool { return !errors.Is(e.err, errUnrequested) }))
		return
	}
	for _, e := range r.ends {
		c := p.container(e.id)
		c.code = e.code
		switch {
		case e.err != nil:
			d.fail(c, e.err)
		case e.killed:
			d.become(c, Killed)
		default:
			d.become(c, Stopped)
		}
	}
	if p.stops > 0 { // which continue with it
		d.countPhase(r.phase)
		return
	}
	d.finish(p, r.phase)
}

// endedAt returns when a pod whose containers have all ended was over: now, or, if its sandbox waited
// for a container, when the last one ended, if reported.
func (d *Drain) endedAt(p *pod) time.Time {
	if p.kept {
		for _, listed := range d.lists.current {
			if at := d.lastEnd(listed); listed.Runtime == p.runtime && listed.ID == p.id && !at.IsZero() {
				return at
			}
		}
	}
	return time.Now()
}
