package drain

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
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
	d.progress.noneWaiting = false
	defer d.releaseSandboxes()
	n := d.launch(i, end)
	if d.progress.overran { // no list was made since
		d.relist(ctx)
	}
	if n > 0 {
		d.log.Info("shutdown phase started", "phase", phase.Name, "pods", n, "grace", time.Until(end))
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
			// If runtimes send events, the agent lists pods anyway.
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
			d.log.Warn("containers not stopped in time", "phase", phase.Name, "containers", d.stuck())
			d.progress.overran = true
		}
		return // their calls continue, and so do the phases
	case cancelled, ended:
		return
	}
	if n > 0 {
		d.log.Info("shutdown phase ended", "phase", phase.Name, "took", time.Since(began))
	}
	if i < len(d.schedule.phases)-1 && d.any((*pod).tears) {
		d.awaitSandboxes(ctx, min(time.Until(end), sandboxWait))
		d.lists.settled = false
	}
}

// launch begins to stop what runs in phase i and before, unless its stop was started already. It
// returns how many pods that were. Pods are not queued for a free slot: that would use up their
// grace period.
func (d *Drain) launch(i int, end time.Time) int {
	launched, changed := 0, false
	if d.life.ended(d.calls.ctx) {
		return 0
	}
	nothingLeft := d.schedule.nothingLeft(i, end)
	var starts []start
	for n, phase := range d.plan().Phases {
		inTime := plan.Within(phase.Pods, max(0, time.Until(end)))
		for k, pod := range phase.Pods {
			p, came := d.entry(phase.Name, pod)
			record := p.record
			changed = changed || came
			if n > i {
				continue
			}
			if d.skips(pod) {
				record.Outcome = journal.Skipped
				continue
			}
			if nothingLeft && record.StartedAt.IsZero() {
				continue
			}
			containers := d.targets(p, inTime[k], i, end)
			if len(containers) == 0 {
				d.notePending(pod.Pod)
				continue
			}
			if record.StartedAt.IsZero() {
				record.StartedAt = time.Now()
			}
			record.Outcome, record.FinishedAt = "", time.Time{}
			launched, changed = launched+1, true
			starts = append(starts, start{p, pod.Pod, containers})
		}
	}
	for _, s := range starts { // now that it is known of all which stops begin
		d.inTurn(s, end)
		d.notePending(s.listed)
	}
	for _, s := range starts {
		d.begin(i, s.pod, s.listed, s.targets, end)
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

// start is a pod whose containers are to be stopped now.
type start struct {
	pod     *pod
	listed  runtime.Pod
	targets []target
}

// inTurn notes for each container of a pod whose stops it waits for, and that its own begins.
func (d *Drain) inTurn(s start, end time.Time) {
	for n := range s.targets {
		t := &s.targets[n]
		for _, id := range t.Waits {
			if other := d.containerOf(s.pod, id); other != nil && other.over != nil {
				t.after = append(t.after, other.over)
			}
		}
		for _, unit := range t.AfterUnits {
			if len(d.containersOf(unit)) == 0 { // else the plan has them in Waits, without circles
				t.after = append(t.after, d.stopService(unit, end))
			}
		}
		d.noteStarted(s.pod, *t, s.listed.Sandbox)
		if len(t.after) == 0 || t.gone != nil {
			d.noteGrace(s.pod, *t, end.Add(-t.Rest))
		}
	}
}

// reopen continues a drain that was finished.
func (d *Drain) reopen() {
	d.record.FinishedAt, d.record.Graceful, d.record.Error = time.Time{}, false, ""
}

// launchLate is launch for pods that appeared since. If little time is left, their stops are owed,
// and the sandboxes of pods that are being stopped stay.
func (d *Drain) launchLate(i int, end time.Time) int {
	if !d.schedule.brief(i, end) {
		return d.launch(i, end)
	}
	for _, pod := range d.lists.current {
		d.notePending(pod)
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

// skips reports whether the pod is not to be stopped.
func (d *Drain) skips(pod plan.PlannedPod) bool {
	return d.options.SkipCritical && pod.Priority >= plan.CriticalPriority
}

// runsUnrequested reports whether a pod that is not skipped has containers that run and whose stop is
// still to be requested.
func (d *Drain) runsUnrequested(planned plan.PlannedPod) bool {
	p := d.podOf(planned.Pod)
	return !d.skips(planned) && slices.ContainsFunc(planned.Containers, func(c plan.PlannedContainer) bool { return p.isUnrequested(c.Container) })
}

// targets returns the containers whose stop is not started yet, and is to begin. If no time
// is left in phase i, it leaves out those whose stop no earlier process has requested, or only in
// a later phase.
func (d *Drain) targets(p *pod, planned plan.PlannedPod, i int, end time.Time) (targets []target) {
	nothingLeft, due := d.schedule.nothingLeft(i, end), d.schedule.due(i)
	for _, l := range planned.Containers {
		c := p.container(l.ID)
		if c.state != Unrequested {
			continue
		}
		asked, before := p.requestedAt(p.resumed, l.Container)
		given, spent := p.requestedAt(p.spent, l.Container)
		later := before && i < len(d.schedule.phases)-1 && asked.After(due)
		if nothingLeft && !spent && (!before || later) {
			continue
		}
		c.kill, c.over = time.Now().Add(within(l.Own, end.Add(-l.Rest), d.schedule.slack)), make(chan struct{})
		t := target{PlannedContainer: l, over: c.over, requestedAt: given, spent: spent}
		// An earlier process requested its stop and did not see it end. To some
		// programs a second signal is an order to drop everything.
		if before {
			t.requestedAt, t.gone = asked, make(chan struct{})
			c.gone = t.gone
		}
		targets = append(targets, t)
	}
	return targets
}

// containerOf is the container with an ID, of a pod or of another one; nil if none is known. One of
// another runtime counts only if its own knows none: units order containers of all runtimes.
func (d *Drain) containerOf(p *pod, id string) *container {
	if c := p.containers[id]; c != nil {
		return c
	}
	var elsewhere *container
	for _, other := range d.pods {
		switch c := other.containers[id]; {
		case c != nil && other.runtime == p.runtime:
			return c
		case c != nil:
			elsewhere = c
		}
	}
	return elsewhere
}

// noteStarted notes that the stop of a container begins: it is requested now, or in its turn after
// others. When it was requested is on record, also of those that may be started again, as those of
// a sandbox are not.
func (d *Drain) noteStarted(p *pod, t target, sandbox bool) {
	c := p.container(t.ID)
	p.record.Once = p.record.Once || t.Container.Restart == runtime.RestartElsewhere
	c.Restarting = c.Restarting || t.Container.Restarting
	c.ByUnit = c.ByUnit || t.Container.Restart == runtime.RestartByUnit
	if restart := t.Container.Restart.String(); journal.StaysStopped(restart, false) != "" {
		c.NotRestarted = restart
	}
	c.Name, p.written = t.Name, nil
	if t.gone != nil || t.spent {
		d.become(c, Stopping)
		if !c.Requested { // by a record of an earlier version
			c.Requested, c.RequestedAt = true, t.requestedAt
		}
		return
	}
	if len(t.after) > 0 {
		d.become(c, Waiting)
		c.RequestedAt, c.Restartable = time.Time{}, true
	} else {
		d.become(c, Stopping)
		c.RequestedAt = time.Now()
		c.Restartable = c.Restartable || !sandbox || t.Container.Restart != runtime.RestartUnknown // which its runtime may not have reported yet
	}
	c.Requested = true
	if c.Restartable {
		c.StartedAt = runOf(t.Container)
	}
}

// noteGrace puts on record how long a container has from the request of its stop to its kill, at
// until at the latest, and what limits that.
func (d *Drain) noteGrace(p *pod, t target, until time.Time) {
	if t.spent {
		return // it has no second one
	}
	c := p.container(t.ID)
	given := min(t.Given(), max(0, time.Since(c.RequestedAt))+within(math.MaxInt64, until, d.schedule.slack))
	c.grace = &journal.Limit{Container: t.Name, Grace: metav1.Duration{Duration: given}}
	if t.Requested && given < t.Own {
		c.grace.Wanted.Duration = t.Own
		c.grace.By = cmp.Or(t.Limit, "what was left of phase "+d.schedule.phases[d.progress.phase].Name)
	}
	p.record.Grace.Duration, p.record.Limits = 0, nil
	for _, id := range slices.Sorted(maps.Keys(p.containers)) {
		if g := p.containers[id].grace; g != nil {
			p.record.Grace.Duration = max(p.record.Grace.Duration, g.Grace.Duration)
			if g.By != "" {
				p.record.Limits = append(p.record.Limits, *g)
			}
		}
	}
}

// requestedAt returns when an earlier process or drain requested the stop of a container, and
// whether it did. It began with the pod at began, which is zero if it did not. The stop of a
// container that stops after others was requested later, if at all. A run that was started since
// is another one.
func (p *pod) requestedAt(began time.Time, listed runtime.Container) (time.Time, bool) {
	c := p.container(listed.ID)
	if began.IsZero() || c.restarted {
		return time.Time{}, false
	}
	if run := runOf(listed); !c.StartedAt.IsZero() && !run.IsZero() && !run.Equal(c.StartedAt) {
		return time.Time{}, false
	}
	if c.Requested {
		return c.RequestedAt, !c.RequestedAt.IsZero()
	}
	// Records of earlier versions have no requests of containers.
	none := !p.has(func(c *container) bool { return c.Requested })
	return began, none && !listed.CreatedAt.After(began)
}
