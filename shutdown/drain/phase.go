package drain

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// runPhase stops the pods of phase i, and those of earlier phases that came
// late, and returns when they are stopped or the phase is over.
func (d *Drain) runPhase(ctx, calls context.Context, i int) {
	phase, began, end := d.phases[i], time.Now(), d.end(i)
	d.phase, d.inPhase = i, 0
	d.calm = false
	defer d.calmDown(calls)
	n := d.launch(calls, i, end)
	if d.overran { // nobody has looked since
		d.relist(ctx)
	}
	if n > 0 {
		d.log.Info("shutdown phase begins", "phase", phase.Name, "pods", n, "grace", time.Until(end))
	} else if d.settled {
		return
	}
	switch d.await(ctx, calls, wait{
		reached:   func() bool { return d.inPhase == 0 && d.settled },
		until:     end.Add(d.settle()),
		cancelled: d.cancelled,
		relist:    func() bool { return d.inPhase == 0 },
		listed: func(l listing) {
			d.take(l)
			d.release(calls)
			late := d.launchLate(calls, i, end)
			n += late
			d.settled = late == 0 && d.settles(l)
		},
		poll: func() {
			if d.any((*pod).awaits) {
				d.relist(ctx)
			}
		},
		news: func() {
			// Where the runtime reports what comes and goes somebody lists them anyway.
			if pods, listed := d.options.Roster.lately(time.Now().Add(-newsPoll)); listed {
				d.takeOver(pods, func(string) bool { return true }, false)
				n += d.launchLate(calls, i, end)
			} else {
				d.relist(ctx)
			}
		},
	}) {
	case late:
		d.settled = false
		if d.inPhase > 0 { // else no list came
			d.log.Warn("containers did not stop in time", "phase", phase.Name, "containers", d.stuck())
			d.overran = true
		}
		return // their calls go on, and so do the others' phases
	case cancelled, ended:
		return
	}
	if n > 0 {
		d.log.Info("shutdown phase ends", "phase", phase.Name, "took", time.Since(began))
	}
	if i < len(d.phases)-1 && d.any((*pod).tears) {
		d.awaitSandboxes(ctx, calls, min(time.Until(end), sandboxWait))
		d.settled = false
	}
}

// launch begins to stop what runs in phase i and before, and was not asked to
// stop yet. It returns how many pods that were. Pods are not queued for a free
// slot: that would eat their grace.
func (d *Drain) launch(calls context.Context, i int, end time.Time) int {
	launched, changed := 0, false
	if d.ended(calls) {
		return 0
	}
	nothingLeft := d.nothingLeft(i, end)
	for n, phase := range plan.New(d.phases, d.current, d.options.Rules, 0).Phases {
		for _, pod := range phase.Pods {
			p, came := d.entry(phase.Name, pod)
			record := p.record
			changed = changed || came
			if n > i {
				continue
			}
			if d.spares(pod) {
				record.Outcome = journal.Skipped
				continue
			}
			if nothingLeft && record.StartedAt.IsZero() {
				continue
			}
			containers := d.unasked(p, pod.Within(max(0, time.Until(end))), i, end)
			d.owe(pod.Pod)
			if len(containers) == 0 {
				continue
			}
			if record.StartedAt.IsZero() {
				record.StartedAt = time.Now()
			}
			record.Outcome, record.FinishedAt = "", time.Time{}
			if p.spent.IsZero() {
				record.Grace = metav1.Duration{Duration: d.within(pod.Grace.Duration, end)}
			}
			launched, changed = launched+1, true
			d.begin(calls, i, p, pod.Pod, containers, end)
		}
	}
	if changed {
		if d.short != nil { // else an earlier process may have had less
			d.record.Shortened = d.short
		}
		d.reopen()
		d.publish()
	}
	return launched
}

// reopen has a drain that came to its end go on.
func (d *Drain) reopen() {
	d.record.FinishedAt, d.record.Graceful, d.record.Error = time.Time{}, false, ""
}

// launchLate is launch for pods that came since. Where little is left they are to be asked
// later, and the sandboxes stay of those that are being stopped.
func (d *Drain) launchLate(calls context.Context, i int, end time.Time) int {
	if !d.brief(i, end) {
		return d.launch(calls, i, end)
	}
	for _, pod := range d.current {
		d.owe(pod)
	}
	return 0
}

// brief tells whether so little is left of phase i that who was not asked to end yet has more
// time in the next, and after the last when the service stops then.
func (d *Drain) brief(i int, end time.Time) bool {
	return time.Until(end) <= min(newsPoll, d.phases[i].Grace/2)
}

// nothingLeft tells whether phase i has no time for who was not asked to end yet, as where very
// little is granted, or no agent was there to begin it: who was to have some time is not to be
// killed here.
func (d *Drain) nothingLeft(i int, end time.Time) bool {
	return d.options.Phases[i].Grace > 0 && d.brief(i, end)
}

// entry is a pod that is on record, and whether it was entered just now.
func (d *Drain) entry(phase string, planned plan.PlannedPod) (p *pod, came bool) {
	if p = d.podOf(planned.Pod); p.record != nil {
		return p, false
	}
	return d.enter(journal.PodRecord{
		Runtime: planned.Runtime, ID: planned.ID, UID: planned.UID, Namespace: planned.Namespace, Name: planned.Name,
		Phase: phase, Priority: planned.Priority, Grace: planned.Grace, Sandbox: planned.Pod.Sandbox,
	}), true
}

// spares tells whether the pod is to be left alone.
func (d *Drain) spares(pod plan.PlannedPod) bool {
	return d.options.SpareCritical && pod.Priority >= plan.CriticalPriority
}

// unasked returns the containers whose stop is not begun yet, and notes that it is now, or will be
// once those have ended that need them. Where nothing is left of phase i it leaves out whom no
// process has asked before, or one that was in a later phase.
func (d *Drain) unasked(p *pod, planned plan.PlannedPod, i int, end time.Time) (targets []target) {
	nothingLeft, due := d.nothingLeft(i, end), d.due(i)
	for _, l := range planned.Containers {
		c := p.container(l.ID)
		if c.state != Unrequested {
			continue
		}
		asked, before := p.askedAt(p.resumed, l.Container)
		given, spent := p.askedAt(p.spent, l.Container)
		later := before && i < len(d.phases)-1 && asked.After(due)
		if nothingLeft && !spent && (!before || later) {
			continue
		}
		c.kill, c.over = time.Now().Add(d.within(l.Own, end.Add(-l.Rest))), make(chan struct{})
		t := target{PlannedContainer: l, over: c.over, asked: given, spent: spent}
		// An earlier process asked it to end and did not see it end. Asking
		// again is to some programs an order to drop everything.
		if before {
			t.asked, t.gone = asked, make(chan struct{})
			c.gone = t.gone
		}
		targets = append(targets, t)
	}
	for n := range targets {
		t := &targets[n]
		for _, id := range t.Waits {
			if other := p.containers[id]; other != nil && other.over != nil {
				t.after = append(t.after, other.over)
			}
		}
		d.noteBegun(p, *t, planned.Pod.Sandbox)
	}
	return targets
}

// noteBegun notes that the stop of a container begins: it is requested now, or in its turn after
// others. When it was requested is on record, also of those that may be started again, as those of
// a sandbox are not.
func (d *Drain) noteBegun(p *pod, t target, sandbox bool) {
	c := p.container(t.ID)
	p.record.Once = p.record.Once || t.Container.Restart == runtime.RestartElsewhere
	c.Restarting = c.Restarting || t.Container.Restarting
	c.ByUnit = c.ByUnit || t.Container.Restart == runtime.RestartByUnit
	c.Name, p.written = t.Name, nil
	if t.gone != nil || t.spent {
		d.become(c, Stopping)
		if !c.Requested { // by a record that had no container's own request
			c.Requested, c.RequestedAt = true, t.asked
		}
		return
	}
	if len(t.after) > 0 {
		d.become(c, Waiting)
		c.RequestedAt, c.Restartable = time.Time{}, true
	} else {
		d.become(c, Stopping)
		c.RequestedAt = time.Now()
		c.Restartable = c.Restartable || !sandbox || t.Container.Restart != runtime.RestartUnknown // which may not have been told yet
	}
	c.Requested = true
	if c.Restartable {
		c.StartedAt = runOf(t.Container)
	}
}

// askedAt tells whether and when the stop of a container was requested by an earlier process or
// drain, which began with its pod at a time, zero if it did not. One that ends after others was
// asked later, if at all, and one that somebody has started since is another run.
func (p *pod) askedAt(began time.Time, listed runtime.Container) (time.Time, bool) {
	c := p.container(listed.ID)
	if began.IsZero() || c.anew {
		return time.Time{}, false
	}
	if run := runOf(listed); !c.StartedAt.IsZero() && !run.IsZero() && !run.Equal(c.StartedAt) {
		return time.Time{}, false
	}
	if c.Requested {
		return c.RequestedAt, !c.RequestedAt.IsZero()
	}
	// As records had it that told of none.
	none := !p.has(func(c *container) bool { return c.Requested })
	return began, none && !listed.CreatedAt.After(began)
}
