package drain

import (
	"errors"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// begin starts the stops of containers of a pod in phase i.
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

// release continues with pods whose sandboxes waited for containers that have now ended by
// themselves.
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

// finish continues with a pod when all started stops of its containers have ended. It waits for
// pending stops, or tears down the sandbox. After a cancellation, a partly stopped pod stays as it
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

// countPhase decrements the number of running stops of a phase.
func (d *Drain) countPhase(phase int) {
	if phase == d.progress.phase {
		d.progress.inPhase--
		d.progress.noneWaiting = d.progress.noneWaiting || d.progress.inPhase == 0
	}
	d.tearQueued()
}

// releaseSandboxes tears down the sandboxes that waited for containers of the phase.
func (d *Drain) releaseSandboxes() {
	d.progress.noneWaiting = true
	d.tearQueued()
}

// tearQueued starts the next teardowns. While containers of the phase are stopping, it runs one at
// a time. A teardown loads the runtime like a stop, and the grace periods are running. A sandbox
// with a new container stays.
func (d *Drain) tearQueued() {
	if d.life.ended(d.calls.ctx) {
		return
	}
	d.progress.queue = slices.DeleteFunc(d.progress.queue, func(p *pod) bool {
		switch {
		case p.busy():
			return true // queued again when that has ended
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

// tearDown starts the teardown of a pod's sandbox.
func (d *Drain) tearDown(p *pod, phase int, last bool) {
	p.tearing++
	k, what, end := p.key, p.listed, p.end
	d.calls.group.Go(func() { d.calls.tearDown(phase, k, what, end, last) })
}

// noteTeardown handles the result of a teardown. A failed last resort is repeated if other
// containers of its pod have ended since.
func (d *Drain) noteTeardown(r result) {
	p := d.pod(r.pod)
	p.tearing--
	if !r.teardown.last {
		d.tearQueued()
		return
	}
	p.resort = false
	switch {
	case r.teardown.err == nil: // all containers end with the sandbox
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

// leaving reports whether this process is ending. Failures of its calls do not count then.
func (d *Drain) leaving() bool { return Closed(d.life.leaving) || d.calls.ctx.Err() != nil }

// noteEnds handles the results of a pod's stops. If this process is ending, it only handles
// containers whose stop was not requested.
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
	if p.stops > 0 { // the other stops continue
		d.countPhase(r.phase)
		return
	}
	d.finish(p, r.phase)
}

// endedAt returns when the stop of a pod ended whose containers have all ended. It is now. If the
// sandbox waited for a container, it is when the last container ended, if reported.
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
