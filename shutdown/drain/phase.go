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
	over := time.NewTimer(time.Until(end.Add(d.settle())))
	defer over.Stop()
	poll := time.NewTicker(resumePoll)
	defer poll.Stop()
	news := time.NewTicker(newsPoll)
	defer news.Stop()
	for d.inPhase > 0 || !d.settled {
		if d.inPhase == 0 {
			d.relist(ctx)
		}
		select {
		case r := <-d.results:
			d.note(calls, r)
		case l := <-d.lists:
			d.take(l)
			d.release(calls)
			late := d.launchLate(calls, i, end)
			n += late
			d.settled = late == 0 && d.settles(l)
		case <-poll.C:
			if len(d.gone) > 0 {
				d.relist(ctx)
			}
		case <-news.C:
			// Where the runtime tells of what comes and goes somebody lists them anyway.
			if pods, told := d.options.Roster.lately(time.Now().Add(-newsPoll)); told {
				d.takeOver(pods, func(string) bool { return true }, false)
				n += d.launchLate(calls, i, end)
			} else {
				d.relist(ctx)
			}
		case <-over.C:
			d.settled = false
			if d.inPhase > 0 { // else no list came
				d.log.Warn("containers did not stop in time", "phase", phase.Name, "containers", d.stuck())
				d.overran = true
			}
			return // their calls go on, and so do the others' phases
		case <-d.cancelled:
			return
		case <-ctx.Done():
			return
		}
	}
	if n > 0 {
		d.log.Info("shutdown phase ends", "phase", phase.Name, "took", time.Since(began))
	}
	if i < len(d.phases)-1 && d.any((*group).tears) {
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
			k := key{pod.Runtime, pod.ID}
			record, came := d.entry(phase.Name, pod)
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
			containers := d.unasked(k, pod.Within(max(0, time.Until(end))), i, end)
			d.owe(pod.Pod)
			if len(containers) == 0 {
				continue
			}
			if record.StartedAt.IsZero() {
				record.StartedAt = time.Now()
			}
			record.Outcome, record.FinishedAt = "", time.Time{}
			if _, spent := d.spent[k]; !spent {
				record.Grace = metav1.Duration{Duration: d.within(pod.Grace.Duration, end)}
			}
			launched, changed = launched+1, true
			d.begin(calls, i, pod.Pod, containers, end)
		}
	}
	if changed {
		if d.short != nil { // else an earlier process may have had less
			d.record.Shortened = d.short
		}
		d.reopen()
		d.options.Publish(d.record.Clone())
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

// entry is a pod's place in the record, and whether it was made just now.
func (d *Drain) entry(phase string, pod plan.PlannedPod) (record *journal.PodRecord, came bool) {
	k := key{pod.Runtime, pod.ID}
	at, known := d.index[k]
	if !known {
		at = len(d.record.Pods)
		d.index[k] = at
		d.record.Pods = append(d.record.Pods, journal.PodRecord{
			Runtime: pod.Runtime, ID: pod.ID, UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Phase: phase, Priority: pod.Priority, Grace: pod.Grace, Sandbox: pod.Pod.Sandbox,
		})
	}
	return &d.record.Pods[at], !known
}

// spares tells whether the pod is to be left alone.
func (d *Drain) spares(pod plan.PlannedPod) bool {
	return d.options.SpareCritical && pod.Priority >= plan.CriticalPriority
}

// unasked returns the containers that were not asked to end yet, and notes that
// they are now, or will be once those have ended that need them. Where nothing is left of phase
// i it leaves out whom no process has asked before, or one that was in a later phase.
func (d *Drain) unasked(pod key, planned plan.PlannedPod, i int, end time.Time) (targets []target) {
	nothingLeft, due := d.nothingLeft(i, end), d.due(i)
	for _, c := range planned.Containers {
		k := key{c.Runtime, c.ID}
		if _, ok := d.ends[k]; ok {
			continue
		}
		asked, before := d.askedAt(d.resumed, pod, c)
		given, spent := d.askedAt(d.spent, pod, c)
		later := before && i < len(d.phases)-1 && asked.After(due)
		if nothingLeft && !spent && (!before || later) {
			continue
		}
		d.ends[k] = &containerEnd{key: k, pod: pod, name: c.Name, kill: time.Now().Add(d.within(c.Own, end.Add(-c.Rest)))}
		d.stops[k] = make(chan struct{})
		t := target{PlannedContainer: c, over: d.stops[k], asked: given, spent: spent}
		// An earlier process asked it to end and did not see it end. Asking
		// again is to some programs an order to drop everything.
		if before {
			t.asked, t.gone = asked, make(chan struct{})
			d.gone[k] = t.gone
		}
		targets = append(targets, t)
	}
	for n := range targets {
		for _, id := range targets[n].Waits {
			if other, stops := d.stops[key{targets[n].Runtime, id}]; stops {
				targets[n].after = append(targets[n].after, other)
			}
		}
	}
	d.noteAsked(pod, targets, planned.Pod.Sandbox)
	return targets
}

// noteAsked writes down who is asked now that was not before: of those that wait for
// others that they do, and of those that may be started again, as those of a sandbox are
// not, when.
func (d *Drain) noteAsked(pod key, targets []target, sandbox bool) {
	turns, runs, names := map[string]time.Time{}, map[string]time.Time{}, map[string]string{}
	late := map[string]time.Time{}
	for _, t := range targets {
		p := &d.record.Pods[d.index[pod]]
		p.Once = p.Once || t.Container.Restart == runtime.RestartElsewhere
		if t.Container.Restarting {
			p.Restarting = also(p.Restarting, t.ID)
		}
		if t.Container.Restart == runtime.RestartByUnit {
			p.ByUnit = also(p.ByUnit, t.ID)
		}
		_, owedTurn := p.Asked[t.ID] // from an earlier process
		_, noted := turnOf(*p, t.ID)
		switch {
		case t.gone != nil || t.spent:
			if !noted { // by a record that told of none
				late[t.ID] = t.asked
			}
		case len(t.after) > 0:
			turns[t.ID] = time.Time{}
		case owedTurn, !sandbox || t.Container.Restart != runtime.RestartUnknown: // which may not have been told yet
			turns[t.ID] = time.Now()
		default:
			late[t.ID] = time.Now()
		}
		if _, noted := turns[t.ID]; noted {
			names[t.ID] = t.Name
			if _, before := p.Runs[t.ID]; before || !runOf(t.Container).IsZero() { // that one is over
				runs[t.ID] = runOf(t.Container)
			}
		}
	}
	d.noteTurns(pod, turns)
	p := &d.record.Pods[d.index[pod]]
	p.Runs, p.Names, p.Late = with(p.Runs, runs), with(p.Names, names), with(p.Late, late)
}

// askedAt tells whether and when a container was asked to end by an earlier process or
// drain, of which times has when it began with the pod. One that ends after others was
// asked later, if at all, and one that somebody has started since is another run.
func (d *Drain) askedAt(times map[key]time.Time, pod key, c plan.PlannedContainer) (time.Time, bool) {
	began, ok := times[pod]
	if !ok || d.anew[key{c.Runtime, c.ID}] {
		return time.Time{}, false
	}
	p := d.record.Pods[d.index[pod]]
	if run, now := p.Runs[c.ID], runOf(c.Container); !run.IsZero() && !now.IsZero() && !run.Equal(now) {
		return time.Time{}, false
	}
	if turn, noted := turnOf(p, c.ID); noted {
		return turn, !turn.IsZero()
	}
	// As records had it that told of none.
	return began, len(p.Asked)+len(p.Late) == 0 && !c.Container.CreatedAt.After(began)
}
