package drain

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// group is what this process does with one pod: it stops its containers, also those that come
// when others are being stopped already, and then its sandbox. To tear that down is to kill what
// runs in it: it waits for all of them.
type group struct {
	pod   runtime.Pod       // as it was when containers of it were asked last
	phase int               // then
	end   time.Time         // of that
	stops int               // calls of stopPod that are under way
	owed  map[key]time.Time // containers that are still to be asked, and when the drain learned of them
	kept  bool              // all that were asked are over, and the sandbox stays for those

	tearing int  // teardowns that are under way
	resort  bool // one of them is the last resort
	again   bool // others have ended since that was begun
}

// teardown is what became of a sandbox.
type teardown struct {
	last bool // it was the last resort, to kill containers that failed to stop
	err  error
}

// group is the one of a pod.
func (d *Drain) group(pod key) *group {
	if d.groups[pod] == nil {
		d.groups[pod] = &group{owed: map[key]time.Time{}}
	}
	return d.groups[pod]
}

// busy tells whether containers of the pod are being stopped, or killed by the last resort.
func (g *group) busy() bool { return g.stops > 0 || g.resort }

// tears tells whether the sandbox is being torn down.
func (g *group) tears() bool { return g.tearing > 0 }

// any tells whether a pod is like that.
func (d *Drain) any(is func(*group) bool) bool {
	for _, g := range d.groups {
		if is(g) {
			return true
		}
	}
	return false
}

// begin has containers of a pod stopped in phase i.
func (d *Drain) begin(calls context.Context, i int, pod runtime.Pod, containers []target, end time.Time) {
	k := key{pod.Runtime, pod.ID}
	g := d.group(k)
	g.pod, g.phase, g.end, g.kept = pod, i, end, false
	g.stops++
	for _, c := range containers {
		delete(g.owed, key{c.Runtime, c.ID})
	}
	d.begun++
	d.inPhase++
	d.settled = false
	d.calls.Go(func() { d.stopPod(calls, i, k, containers, end) })
}

// owe notes those of a pod's containers that are still to be asked to end.
func (d *Drain) owe(pod runtime.Pod) {
	for _, c := range pod.Containers {
		if d.isUnasked(pod, c) {
			d.group(key{pod.Runtime, pod.ID}).owed[key{c.Runtime, c.ID}] = time.Now()
		}
	}
}

// isUnasked tells whether a container is still to be asked to end.
func (d *Drain) isUnasked(pod runtime.Pod, c runtime.Container) bool {
	return plan.Alive(c) && (d.ends[key{c.Runtime, c.ID}] == nil || d.isAnotherRun(pod, c))
}

// strike takes off the notes whom a list does not show alive that was asked for since. Others'
// lists may be older than they seem.
func (d *Drain) strike(asked time.Time) {
	alive := map[key]bool{}
	for _, p := range d.current {
		for _, c := range p.Containers {
			alive[key{c.Runtime, c.ID}] = plan.Alive(c)
		}
	}
	for _, g := range d.groups {
		for k, seen := range g.owed {
			if d.told(k.runtime) && !alive[k] && !asked.Before(seen) {
				delete(g.owed, k)
			}
		}
	}
}

// release goes on with pods whose sandboxes stayed for others who have ended by themselves.
func (d *Drain) release(calls context.Context) {
	for k, g := range d.groups {
		if g.kept && len(g.owed) == 0 {
			if g.phase == d.phase {
				d.inPhase++
			}
			d.finish(calls, k, g.phase)
		}
	}
}

// finish goes on with a pod once all containers of it that were asked are over: with those that
// are still to be asked, or with its sandbox. What is half stopped at a cancellation is left to
// its owner.
func (d *Drain) finish(calls context.Context, pod key, phase int) {
	g := d.group(pod)
	ended := d.endedAt(pod, g.kept)
	g.kept = false
	switch {
	case len(g.owed) > 0:
		g.kept = true
	case d.isCancelled():
		d.noteOver(pod, ended)
	case g.resort:
		g.again = true
	case d.failed(pod):
		g.resort, g.again = true, false
		d.begun++
		d.settled = false
		d.tearDown(calls, pod, phase, true)
		return
	default:
		d.noteOver(pod, ended)
		if !slices.Contains(d.queue, pod) {
			d.queue = append(d.queue, pod)
		}
	}
	d.countPhase(calls, phase)
}

// failed tells whether a container of the pod was asked and did not stop.
func (d *Drain) failed(pod key) bool {
	for _, e := range d.ends {
		if e.pod == pod && e.done && e.err != nil {
			return true
		}
	}
	return false
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
	d.queue = slices.DeleteFunc(d.queue, func(pod key) bool {
		g := d.group(pod)
		switch {
		case g.busy():
			return true // and comes again, or goes with that
		case len(g.owed) > 0:
			g.kept = true
			return true
		case g.tears(), !d.calm && g.phase == d.phase && d.any(func(g *group) bool { return g.tears() && g.phase == d.phase }):
			return false
		}
		d.tearDown(calls, pod, g.phase, false)
		return true
	})
}

// tearDown tears the sandbox of a pod down.
func (d *Drain) tearDown(calls context.Context, pod key, phase int, last bool) {
	g := d.group(pod)
	g.tearing++
	what, end := g.pod, g.end
	d.calls.Go(func() {
		ctx, cancel := d.teardownBound(calls, last, end)
		defer cancel()
		err := Bounded(ctx, func() error { return d.options.Roster.StopPod(ctx, what) })
		if err != nil {
			d.log.Warn("the sandbox of a pod stays behind", "pod", strings.TrimPrefix(what.Namespace+"/"+what.Name, "/"), "error", err)
		}
		d.tell(result{phase: phase, pod: pod, torn: &teardown{last, err}})
	})
}

// noteTorn takes in what became of a sandbox. A last resort that failed is tried again if others
// of its pod have ended meanwhile.
func (d *Drain) noteTorn(calls context.Context, r result) {
	g := d.group(r.pod)
	g.tearing--
	if !r.torn.last {
		d.tearQueued(calls)
		return
	}
	g.resort = false
	switch {
	case r.torn.err == nil: // a sandbox that is gone took along what still ran in it
		clear(g.owed)
		g.kept = false
		for _, e := range d.ends {
			if e.pod == r.pod && e.done && e.err != nil {
				e.killed, e.err = true, nil
			}
		}
	case d.leaves(calls):
		d.noteUnasked(r.pod, nil)
		return
	case g.again && g.stops == 0:
		d.finish(calls, r.pod, r.phase)
		return
	}
	if g.stops == 0 {
		d.noteOver(r.pod, time.Now())
	}
	d.countPhase(calls, r.phase)
}

// leaves tells whether this process ends: what fails now says nothing of the containers.
func (d *Drain) leaves(calls context.Context) bool { return Closed(d.leaving) || calls.Err() != nil }

// noteEnds takes in how containers of a pod ended. Where this process ends that is only who was
// not asked.
func (d *Drain) noteEnds(calls context.Context, r result) {
	g := d.group(r.pod)
	g.stops--
	if d.leaves(calls) {
		d.noteUnasked(r.pod, slices.DeleteFunc(r.ends, func(e containerEnd) bool { return !errors.Is(e.err, errUnasked) }))
		return
	}
	for _, e := range r.ends {
		*d.ends[e.key] = e
	}
	if g.stops > 0 { // which go on with it
		d.countPhase(calls, r.phase)
		return
	}
	d.finish(calls, r.pod, r.phase)
}

// noteOver writes down when the pod was over, and how it ended.
func (d *Drain) noteOver(pod key, ended time.Time) {
	at := d.index[pod]
	if p := &d.record.Pods[at]; p.FinishedAt.IsZero() {
		if p.FinishedAt = ended; ended.Before(p.StartedAt) {
			p.FinishedAt = p.StartedAt
		}
	}
	d.judge(at)
}

// endedAt is when a pod was over of which all containers are: now, or, where its sandbox stayed
// for somebody, when the last of them ended, if its runtime tells.
func (d *Drain) endedAt(pod key, kept bool) time.Time {
	if kept {
		for _, p := range d.current {
			if at := d.lastEnd(p); p.Runtime == pod.runtime && p.ID == pod.id && !at.IsZero() {
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
