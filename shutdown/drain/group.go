package drain

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
)

// teardown is what became of a sandbox.
type teardown struct {
	last bool // it was the last resort, to kill containers that failed to stop
	err  error
}

// begin has containers of a pod stopped in phase i.
func (d *Drain) begin(calls context.Context, i int, p *pod, listed runtime.Pod, containers []target, end time.Time) {
	p.listed, p.phase, p.end, p.kept = listed, i, end, false
	p.stops++
	for _, t := range containers {
		p.container(t.ID).owed = time.Time{}
	}
	d.begun++
	d.inPhase++
	d.settled = false
	k := p.key
	d.calls.Go(func() { d.stopPod(calls, i, k, containers, end) })
}

// release goes on with pods whose sandboxes stayed for others who have ended by themselves.
func (d *Drain) release(calls context.Context) {
	for _, p := range d.pods {
		if p.kept && !p.owes() {
			if p.phase == d.phase {
				d.inPhase++
			}
			d.finish(calls, p, p.phase)
		}
	}
}

// finish goes on with a pod once all containers of it that were asked are over: with those that
// are still to be asked, or with its sandbox. What is half stopped at a cancellation is left to
// its owner.
func (d *Drain) finish(calls context.Context, p *pod, phase int) {
	ended := d.endedAt(p)
	p.kept = false
	switch {
	case p.owes():
		p.kept = true
	case d.isCancelled():
		p.noteOver(ended)
	case p.resort:
		p.again = true
	case p.failed():
		p.resort, p.again = true, false
		d.begun++
		d.settled = false
		d.tearDown(calls, p, phase, true)
		return
	default:
		p.noteOver(ended)
		if !slices.Contains(d.queue, p) {
			d.queue = append(d.queue, p)
		}
	}
	d.countPhase(calls, phase)
}

// countPhase counts down what its phase waits for.
func (d *Drain) countPhase(calls context.Context, phase int) {
	if phase == d.phase {
		d.inPhase--
		d.calm = d.calm || d.inPhase == 0
	}
	d.tearQueued(calls)
}

// calmDown lets sandboxes go that waited for the containers of the phase.
func (d *Drain) calmDown(calls context.Context) {
	d.calm = true
	d.tearQueued(calls)
}

// tearQueued tears sandboxes down whose turn it is. Those of a phase go one at a time until it is
// calm: to tear one down costs a runtime as much as to stop a container, and those have a grace
// that runs. One of a pod into which somebody came stays until that one is over.
func (d *Drain) tearQueued(calls context.Context) {
	if d.ended(calls) {
		return
	}
	d.queue = slices.DeleteFunc(d.queue, func(p *pod) bool {
		switch {
		case p.busy():
			return true // and comes again, or goes with that
		case p.owes():
			p.kept = true
			return true
		case p.tears(), !d.calm && p.phase == d.phase && d.any(func(p *pod) bool { return p.tears() && p.phase == d.phase }):
			return false
		}
		d.tearDown(calls, p, p.phase, false)
		return true
	})
}

// tearDown tears the sandbox of a pod down.
func (d *Drain) tearDown(calls context.Context, p *pod, phase int, last bool) {
	p.tearing++
	k, what, end := p.key, p.listed, p.end
	d.calls.Go(func() {
		ctx, cancel := d.teardownBound(calls, last, end)
		defer cancel()
		err := Bounded(ctx, func() error { return d.options.Roster.StopPod(ctx, what) })
		if err != nil {
			d.log.Warn("the sandbox of a pod stays behind", "pod", strings.TrimPrefix(what.Namespace+"/"+what.Name, "/"), "error", err)
		}
		d.tell(result{phase: phase, pod: k, torn: &teardown{last, err}})
	})
}

// noteTorn takes in what became of a sandbox. A last resort that failed is tried again if others
// of its pod have ended meanwhile.
func (d *Drain) noteTorn(calls context.Context, r result) {
	p := d.pod(r.pod)
	p.tearing--
	if !r.torn.last {
		d.tearQueued(calls)
		return
	}
	p.resort = false
	switch {
	case r.torn.err == nil: // a sandbox that is gone took along what still ran in it
		p.kept = false
		for _, c := range p.containers {
			c.owed = time.Time{}
			if c.state == Failed {
				d.become(c, Killed)
			}
		}
	case d.leaves(calls):
		p.noteUnasked(nil)
		return
	case p.again && p.stops == 0:
		d.finish(calls, p, r.phase)
		return
	}
	if p.stops == 0 {
		p.noteOver(time.Now())
	}
	d.countPhase(calls, r.phase)
}

// leaves tells whether this process ends: what fails now says nothing of the containers.
func (d *Drain) leaves(calls context.Context) bool { return Closed(d.leaving) || calls.Err() != nil }

// noteEnds takes in how containers of a pod ended. Where this process ends that is only who was
// not asked.
func (d *Drain) noteEnds(calls context.Context, r result) {
	p := d.pod(r.pod)
	p.stops--
	if d.leaves(calls) {
		p.noteUnasked(slices.DeleteFunc(r.ends, func(e containerEnd) bool { return !errors.Is(e.err, errUnasked) }))
		return
	}
	for _, e := range r.ends {
		switch c := p.container(e.id); {
		case e.err != nil:
			d.fail(c, e.err)
		case e.killed:
			d.become(c, Killed)
		default:
			d.become(c, Stopped)
		}
	}
	if p.stops > 0 { // which go on with it
		d.countPhase(calls, r.phase)
		return
	}
	d.finish(calls, p, r.phase)
}

// endedAt is when a pod was over of which all containers are: now, or, where its sandbox stayed
// for somebody, when the last of them ended, if its runtime tells.
func (d *Drain) endedAt(p *pod) time.Time {
	if p.kept {
		for _, listed := range d.current {
			if at := d.lastEnd(listed); listed.Runtime == p.runtime && listed.ID == p.id && !at.IsZero() {
				return at
			}
		}
	}
	return time.Now()
}

// teardownBound bounds the end of a sandbox. Where containers failed to stop it is the
// last resort, by which the runtime kills them: that may take a moment, and once
// its phase is over as long as others run. A host so slow that kills take seconds
// has no use for one that is broken off.
func (d *Drain) teardownBound(ctx context.Context, failed bool, end time.Time) (context.Context, context.CancelFunc) {
	switch {
	case !failed:
		return context.WithTimeout(ctx, sandboxBound)
	case time.Now().Before(end): // the phase waits for it
		return context.WithTimeout(ctx, d.slack)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(d.slack, func() {
		select {
		case <-d.last:
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		late.Stop()
		cancel(nil)
	}
}
