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
func (d *Drain) runPhase(ctx context.Context, i int) {
	phase, began, end := d.schedule.phases[i], time.Now(), d.schedule.end(i, d.progress.overran)
	d.progress.phase, d.progress.inPhase = i, 0
	d.progress.calm = false
	defer d.calmDown()
	n := d.launch(i, end)
	if d.progress.overran { // no list was made since
		d.relist(ctx)
	}
	if n > 0 {
		d.log.Info("shutdown phase begins", "phase", phase.Name, "pods", n, "grace", time.Until(end))
	} else if d.lists.settled {
		return
	}
	switch d.await(ctx, wait{
		reached:   func() bool { return d.progress.inPhase == 0 && d.lists.settled },
		until:     end.Add(d.schedule.settle()),
		cancelled: d.life.cancelled,
		relist:    func() bool { return d.progress.inPhase == 0 },
		listed: func(l listing) {
			d.take(l)
			d.release()
			late := d.launchLate(i, end)
			n += late
			d.lists.settled = late == 0 && d.settles(l)
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
				n += d.launchLate(i, end)
			} else {
				d.relist(ctx)
			}
		},
	}) {
	case late:
		d.lists.settled = false
		if d.progress.inPhase > 0 { // else no list came
			d.log.Warn("containers did not stop in time", "phase", phase.Name, "containers", d.stuck())
			d.progress.overran = true
		}
		return // their calls go on, and so do the others' phases
	case cancelled, ended:
		return
	}
	if n > 0 {
		d.log.Info("shutdown phase ends", "phase", phase.Name, "took", time.Since(began))
	}
	if i < len(d.schedule.phases)-1 && d.any((*pod).tears) {
		d.awaitSandboxes(ctx, min(time.Until(end), sandboxWait))
		d.lists.settled = false
	}
}

// launch begins to stop what runs in phase i and before, and was not asked to
// stop yet. It returns how many pods that were. Pods are not queued for a free
// slot: that would eat their grace.
func (d *Drain) launch(i int, end time.Time) int {
	launched, changed := 0, false
	if d.life.ended(d.calls.ctx) {
		return 0
	}
	nothingLeft := d.schedule.nothingLeft(i, end)
	for n, phase := range plan.New(d.schedule.phases, d.lists.current, d.options.Rules, 0).Phases {
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
				record.Grace = metav1.Duration{Duration: within(pod.Grace.Duration, end, d.schedule.slack)}
			}
			launched, changed = launched+1, true
			d.begin(i, p, pod.Pod, containers, end)
		}
	}
	if changed {
		if d.schedule.short != nil { // else an earlier process may have had less
			d.record.Shortened = d.schedule.short
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
func (d *Drain) launchLate(i int, end time.Time) int {
	if !d.schedule.brief(i, end) {
		return d.launch(i, end)
	}
	for _, pod := range d.lists.current {
		d.owe(pod)
	}
	return 0
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
	nothingLeft, due := d.schedule.nothingLeft(i, end), d.schedule.due(i)
	for _, l := range planned.Containers {
		c := p.container(l.ID)
		if c.state != Unrequested {
			continue
		}
		asked, before := p.askedAt(p.resumed, l.Container)
		given, spent := p.askedAt(p.spent, l.Container)
		later := before && i < len(d.schedule.phases)-1 && asked.After(due)
		if nothingLeft && !spent && (!before || later) {
			continue
		}
		c.kill, c.over = time.Now().Add(within(l.Own, end.Add(-l.Rest), d.schedule.slack)), make(chan struct{})
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
