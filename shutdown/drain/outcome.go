package drain

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// note handles the result of a call.
func (d *Drain) note(r result) {
	switch {
	case r.service != nil:
		d.noteService(*r.service)
		return
	case r.order != nil:
		d.noteOrder(r.order)
		return
	case r.teardown != nil:
		d.noteTeardown(r)
	case r.requested != nil:
		p := d.pod(r.pod)
		c := p.container(r.requested.ID)
		d.become(c, Stopping)
		c.RequestedAt, p.written = r.requested.at, nil
		p.noteSignal(c.RequestedAt, slices.Concat(r.requested.AfterUnits, r.requested.After))
		d.noteGrace(p, r.requested.target, r.requested.end)
	default:
		d.noteEnds(r)
	}
	if r.teardown == nil || r.teardown.last {
		d.publish()
	}
}

// noteSignal records the stop signal of one of the pod's containers. after names what it waited for.
func (p *pod) noteSignal(at time.Time, after []string) {
	if p.record.StartedAt.IsZero() {
		p.record.StartedAt, p.record.After = at, after
	}
}

// noteOver records when the stop of the pod ended, and the outcome.
func (p *pod) noteOver(ended time.Time) {
	if r := p.record; r.FinishedAt.IsZero() {
		if r.FinishedAt = ended; ended.Before(r.StartedAt) {
			r.FinishedAt = r.StartedAt
		}
	}
	p.judge()
}

// noteUnrequested records which stops the next process must request. If no stop of the pod was
// requested, it records the pod as not started. Otherwise the next process would kill it after its
// phase, without a stop signal.
func (p *pod) noteUnrequested(ends []containerEnd) {
	for _, e := range ends {
		c := p.container(e.id)
		c.Requested, c.RequestedAt, p.written = true, time.Time{}, nil
	}
	started := func(c *container) bool { return c.state != Unrequested && (!c.Requested || !c.RequestedAt.IsZero()) }
	if p.resumed.IsZero() && !p.has(started) {
		p.record.StartedAt, p.record.After = time.Time{}, nil
	}
}

// conclude sets the outcome of every pod and of the drain.
func (d *Drain) conclude() {
	d.verify()
	d.noteLatecomers()
	if !d.record.FinishedAt.IsZero() && !d.life.isCancelled() {
		return // already concluded, and no pod has run since
	}
	current := map[key]runtime.Pod{}
	for _, p := range d.lists.current {
		current[key{p.Runtime, p.ID}] = p
	}
	now, cancelled := time.Now(), d.life.isCancelled()
	r := d.record
	r.Graceful = !cancelled && d.lists.failure == nil
	if d.lists.failure != nil {
		r.Error = d.lists.failure.Error()
	}
	for _, p := range d.entered {
		d.concludePod(p, current[p.key], now)
		r.Graceful = r.Graceful && p.record.Outcome != journal.Left
	}
	if cancelled {
		r.CancelledAt = now
	} else {
		r.FinishedAt = now
	}
}

// concludePod sets a pod's outcome from the last list. The pod may be missing in it.
func (d *Drain) concludePod(p *pod, listed runtime.Pod, now time.Time) {
	r, reported, cancelled := p.record, d.lists.answered(p.runtime), d.life.isCancelled()
	switch {
	case r.Outcome != "":
	case p.busy():
		p.judge()
	case reported && !plan.Runs(listed) && !cancelled: // it ended by itself, or while no agent ran
		r.Outcome, r.FinishedAt = journal.Stopped, cmp.Or(d.lastEnd(listed), now)
		if r.FinishedAt.Before(r.StartedAt) { // it ended between the list and the request
			r.FinishedAt = r.StartedAt
		}
		if p.requested() {
			p.judge()
		}
	case cancelled && r.StartedAt.IsZero():
		r.Outcome = journal.Skipped
	default:
		r.Outcome = journal.Left
	}
	if !reported {
		return
	}
	r.ExitCodes = p.exitCodes(listed)
	cut := func(c runtime.Container) bool { return c.ExitCode == 137 && d.endedHere(c) && p.wasRequested(c) }
	if r.Outcome == journal.Stopped && !r.StartedAt.IsZero() && slices.ContainsFunc(listed.Containers, cut) { // killed by an earlier process
		r.Outcome = journal.Killed
	}
}

// noteLatecomers records pods, and containers of stopped pods, that appeared when no time was left
// to stop them. Without them, the record would look complete.
func (d *Drain) noteLatecomers() {
	if d.life.isCancelled() {
		return
	}
	for _, phase := range d.plan().Phases {
		for _, pod := range phase.Pods {
			if !d.lists.answered(pod.Runtime) {
				continue
			}
			p, came := d.entry(phase.Name, pod)
			switch {
			case came && d.skips(pod):
				p.record.Outcome = journal.Skipped
			case d.runsUnrequested(pod):
				p.record.Outcome, p.record.Error = journal.Left, "started when no time was left to stop it"
				if d.options.Watch > 0 {
					p.record.Error = "is started again after each stop: stop the service or scheduler that starts it, then drain again"
				}
				d.record.FinishedAt = time.Time{}
			}
		}
	}
}

// lastEnd returns when the last container of a pod ended, if the runtime reports it and if it was
// within this drain.
func (d *Drain) lastEnd(p runtime.Pod) (at time.Time) {
	for _, c := range p.Containers {
		if c.FinishedAt.After(at) && d.endedHere(c) {
			at = c.FinishedAt
		}
	}
	return at
}

// endedHere reports whether a container ended during this drain, by its runtime's times.
func (d *Drain) endedHere(c runtime.Container) bool {
	return c.State == runtime.Exited && c.FinishedAt.After(d.record.StartedAt) && !c.FinishedAt.After(time.Now())
}

// wasRequested reports whether a container's stop had been requested when it ended.
func (p *pod) wasRequested(listed runtime.Container) bool {
	c := p.containers[listed.ID]
	return c != nil && c.Requested && !c.RequestedAt.IsZero() && !listed.FinishedAt.Before(c.RequestedAt)
}

// exitCodes returns the exit codes of a pod's containers by name. If several have the same name,
// the latest counts. For containers that are no longer listed, it is the code of their stop. Nil if
// none has ended.
func (p *pod) exitCodes(listed runtime.Pod) map[string]int32 {
	codes := map[string]int32{}
	for id, c := range p.containers {
		there := slices.ContainsFunc(listed.Containers, func(l runtime.Container) bool { return l.ID == id })
		if c.code != nil && !there && !c.state.mayRun() {
			codes[c.Name] = *c.code
		}
	}
	for _, c := range listed.Containers {
		if c.State != runtime.Exited || c.FinishedAt.IsZero() { // the exit code is unknown
			delete(codes, c.Name)
			continue
		}
		codes[c.Name] = c.ExitCode
	}
	if len(codes) == 0 {
		return nil
	}
	return codes
}

// judge sets the pod's outcome from the states of its containers.
func (p *pod) judge() {
	r := p.record
	r.Outcome, r.Error, r.Stuck = journal.Stopped, "", nil
	for _, id := range slices.Sorted(maps.Keys(p.containers)) {
		switch c := p.containers[id]; {
		case c.state.mayRun():
			r.Stuck = append(r.Stuck, c.Name)
			r.Outcome = journal.Left
			if c.err != nil {
				r.Error = c.err.Error()
			}
		case c.state == Killed && r.Outcome == journal.Stopped:
			r.Outcome = journal.Killed
		}
	}
	slices.Sort(r.Stuck)
	p.noteLimits()
}

// errStillRuns is the error of a container that is running although its runtime reported its stop.
var errStillRuns = errors.New("still running although its runtime reports that it stopped")

// verify corrects outcomes with the last list, if that is complete. Runtimes report SIGKILL as exit
// code 137.
func (d *Drain) verify() {
	if !d.lists.settled {
		return
	}
	for _, listed := range d.lists.current {
		if !d.lists.answered(listed.Runtime) {
			continue
		}
		p := d.podOf(listed)
		for _, l := range listed.Containers {
			if c := p.containers[l.ID]; c != nil && c.state != Unrequested {
				d.verifyEnd(c, l)
			}
		}
	}
	for _, p := range d.pods {
		if d.lists.answered(p.runtime) && p.requested() {
			p.judge()
		}
	}
}

func (d *Drain) verifyEnd(c *container, listed runtime.Container) {
	switch {
	case listed.State == runtime.Exited:
		killed := c.state == Killed
		if !listed.FinishedAt.IsZero() && listed.ExitCode >= 0 { // otherwise the runtime did not see its end
			killed = listed.ExitCode == 137
		}
		if killed {
			d.become(c, Killed)
		} else {
			d.become(c, Stopped)
		}
	case listed.State == runtime.Running && (c.state == Stopped || c.state == Killed) && d.lists.fresh: // older lists may be from before the stop
		d.fail(c, errStillRuns)
	}
}

// stuck returns the containers whose stop was started but that may still be running.
func (d *Drain) stuck() []string {
	var names []string
	for _, p := range d.entered {
		for _, c := range p.containers {
			if c.state.mayRun() {
				names = append(names, p.record.Namespace+"/"+p.record.Name+"/"+c.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}
