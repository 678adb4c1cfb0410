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

// runPhase stops the pods of phase i, and new pods of earlier phases. It returns when they are
// stopped or the phase is over.
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
			// If runtimes send events, the agent lists pods, and the drain uses those lists.
			if pods, listed := d.options.Roster.freshSince(time.Now().Add(-newsPoll)); listed {
				d.takeOver(pods, func(string) bool { return true }, false)
				n += d.launchLate(i, end)
			} else {
				d.relist(ctx)
			}
		},
	}) {
	case late:
		d.lists.settled = false
		if d.progress.inPhase > 0 { // otherwise only the list is missing
			d.log.Warn("containers not stopped in time", "phase", phase.Name, "containers", d.stuck())
			d.progress.overran = true
		}
		return // running calls continue, and the next phase begins
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

// launch starts the remaining stops of phase i and of earlier phases. It returns the number of
// pods. It does not limit parallel stops, because waiting would use up grace periods.
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
			if nothingLeft && record.StartedAt.IsZero() && !p.requested() {
				continue
			}
			containers := d.targets(p, inTime[k], i, end)
			if len(containers) == 0 {
				d.notePending(pod.Pod)
				continue
			}
			record.Outcome, record.FinishedAt = "", time.Time{}
			launched, changed = launched+1, true
			starts = append(starts, start{p, pod.Pod, containers})
		}
	}
	for _, s := range starts { // all stops to start are known now
		d.inTurn(s, end)
		d.notePending(s.listed)
	}
	if d.options.Store != nil && len(starts) > 0 {
		d.publish() // what Store then waits for
	}
	for _, s := range starts {
		d.begin(i, s.pod, s.listed, s.targets, end)
	}
	if changed {
		if d.schedule.short != nil { // otherwise an earlier process may have had less time
			d.record.Shortened = d.schedule.short
		}
		d.reopen()
		d.publish()
	}
	return launched
}

// start is a pod with the containers to stop now.
type start struct {
	pod     *pod
	listed  runtime.Pod
	targets []target
}

// inTurn links each container of a pod to the stops that it waits for, and marks its own stop as
// started.
func (d *Drain) inTurn(s start, end time.Time) {
	for n := range s.targets {
		t := &s.targets[n]
		for _, id := range t.Waits {
			if other := d.containerOf(s.pod, id); other != nil && other.over != nil {
				t.after = append(t.after, other.over)
			}
		}
		for _, unit := range t.AfterUnits {
			if len(d.containersOf(unit)) == 0 { // otherwise the plan has them in Waits, without cycles
				t.after = append(t.after, d.stopService(unit, end))
			}
		}
		d.noteStarted(s.pod, *t, s.listed.Sandbox)
		if len(t.after) == 0 || t.gone != nil {
			d.noteGrace(s.pod, *t, end.Add(-t.Reserve))
		}
	}
}

// reopen marks a finished drain as not finished.
func (d *Drain) reopen() {
	d.record.FinishedAt, d.record.Graceful, d.record.Error = time.Time{}, false, ""
}

// launchLate is launch for new pods. If little time is left, it does not start their stops, and the
// sandboxes of pods that are being stopped stay.
func (d *Drain) launchLate(i int, end time.Time) int {
	if !d.schedule.brief(i, end) {
		return d.launch(i, end)
	}
	for _, pod := range d.lists.current {
		d.notePending(pod)
	}
	return 0
}

// entry returns the pod's entry in the record, and whether it is new.
func (d *Drain) entry(phase string, planned plan.PlannedPod) (p *pod, came bool) {
	if p = d.podOf(planned.Pod); p.record != nil {
		return p, false
	}
	return d.enter(journal.PodRecord{
		Runtime: planned.Runtime, ID: planned.ID, UID: planned.UID, Namespace: planned.Namespace, Name: planned.Name,
		Phase: phase, Priority: planned.Priority, Grace: planned.Grace, Sandbox: planned.Pod.Sandbox,
	}), true
}

// skips reports whether the drain must not stop the pod.
func (d *Drain) skips(pod plan.PlannedPod) bool {
	return d.options.SkipCritical && pod.Priority >= plan.CriticalPriority
}

// runsUnrequested reports whether a pod that is not skipped has running containers whose stop must
// still be requested.
func (d *Drain) runsUnrequested(planned plan.PlannedPod) bool {
	p := d.podOf(planned.Pod)
	return !d.skips(planned) && slices.ContainsFunc(planned.Containers, func(c plan.PlannedContainer) bool { return p.isUnrequested(c.Container) })
}

// targets returns the containers to stop now. If phase i has no time left, it omits those whose
// stop was never requested, or only in a later phase.
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
		c.kill, c.over = time.Now().Add(within(l.Own, end.Add(-l.Reserve), d.schedule.slack)), make(chan struct{})
		t := target{PlannedContainer: l, over: c.over, requestedAt: given, spent: spent}
		// An earlier process requested its stop, but did not see it end. Do not send the signal
		// again: some programs abort on a second one.
		if before {
			t.requestedAt, t.gone = asked, make(chan struct{})
			c.gone = t.gone
		}
		targets = append(targets, t)
	}
	return targets
}

// containerOf returns the container with an ID, of this or another pod; nil if unknown. It searches
// other runtimes last; they matter because units order containers of all runtimes.
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

// noteStarted records that a container's stop starts: now, or after those that it waits for. The
// record has the time for every container that may be started again. Containers of a CRI sandbox
// are not.
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
		if !c.Requested { // in a record of an earlier version
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
		p.noteSignal(c.RequestedAt, nil)
		c.Restartable = c.Restartable || !sandbox || t.Container.Restart != runtime.RestartUnknown // or its restart policy is not reported yet
	}
	c.Requested = true
	if c.Restartable {
		c.StartedAt = runOf(t.Container)
	}
}

// noteGrace records the time between a container's stop signal and its kill, which is at the latest
// at until. It also records what limits that time.
func (d *Drain) noteGrace(p *pod, t target, until time.Time) {
	if t.spent {
		return // it has no second grace period
	}
	c := p.container(t.ID)
	given := min(t.Given(), max(0, time.Since(c.RequestedAt))+within(math.MaxInt64, until, d.schedule.slack))
	c.grace = &journal.Limit{Container: t.Name, Grace: metav1.Duration{Duration: given}}
	if given < t.Own && (t.Requested || t.Own == plan.DefaultContainerGrace) {
		c.grace.Wanted.Duration, c.graceByDefault = t.Own, !t.Requested
		c.grace.By = cmp.Or(t.Cut, "what was left of phase "+d.schedule.phases[d.progress.phase].Name)
	}
	p.record.Grace.Duration = 0
	for _, c := range p.containers {
		if c.grace != nil {
			p.record.Grace.Duration = max(p.record.Grace.Duration, c.grace.Grace.Duration)
		}
	}
	p.noteLimits()
}

// noteLimits records what limited the grace periods. The limit of a default grace period is
// recorded only if the container was killed. Limits from an earlier process are kept.
func (p *pod) noteLimits() {
	if !p.has(func(c *container) bool { return c.grace != nil }) {
		return
	}
	p.record.Limits = nil
	for _, id := range slices.Sorted(maps.Keys(p.containers)) {
		c := p.containers[id]
		if c.grace != nil && c.grace.By != "" && (!c.graceByDefault || c.state == Killed) {
			p.record.Limits = append(p.record.Limits, *c.grace)
		}
	}
}

// requestedAt returns when an earlier process or drain requested the stop of a container, and
// whether it did. began is when the pod's stop began; zero if it did not. A container that waits
// for others was stopped later, or not at all. A request before the current run does not count.
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
	// Earlier versions did not record requests per container.
	none := !p.has(func(c *container) bool { return c.Requested })
	return began, none && !listed.CreatedAt.After(began)
}
