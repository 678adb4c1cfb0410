package drain

import (
	"errors"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// note takes in what a pod's goroutine tells.
func (d *Drain) note(r result) {
	switch {
	case r.sandbox:
		countDown(d.tearing, r.pod)
		return
	case r.asked != key{}:
		d.noteTurns(r.pod, map[string]time.Time{r.asked.id: r.at})
		d.options.Publish(d.record.Clone())
		return
	}
	for _, e := range r.ends {
		*d.ends[e.key] = e
	}
	if r.phase == d.phase {
		if d.inPhase--; d.inPhase == 0 {
			d.calmDown()
		}
	}
	countDown(d.waiting, r.pod)
	if d.waiting[r.pod] > 0 {
		return
	}
	at := d.index[r.pod]
	d.record.Pods[at].FinishedAt = time.Now()
	d.judge(at)
	d.options.Publish(d.record.Clone())
}

// noteTurns writes down when containers were asked to end, for a process that may have to
// go on with this drain, or to start them again.
func (d *Drain) noteTurns(pod key, turns map[string]time.Time) {
	p := &d.record.Pods[d.index[pod]]
	p.Asked = with(p.Asked, turns)
}

// with is a copy of times with more in it: what was published has the old one.
func with(times, more map[string]time.Time) map[string]time.Time {
	if len(more) == 0 {
		return times
	}
	all := maps.Clone(times)
	if all == nil {
		all = map[string]time.Time{}
	}
	maps.Copy(all, more)
	return all
}

func countDown(m map[key]int, k key) {
	if m[k]--; m[k] <= 0 {
		delete(m, k)
	}
}

// conclude gives every pod its outcome and says how the drain went.
func (d *Drain) conclude() {
	d.verify()
	d.noteLatecomers()
	if !d.record.FinishedAt.IsZero() && !d.isCancelled() {
		return // it was before, and nothing ran since
	}
	running := map[key]bool{}
	codes := map[key]map[string]int32{}
	for _, p := range d.current {
		k := key{p.Runtime, p.ID}
		running[k], codes[k] = plan.Runs(p), exitCodes(p)
	}
	now, cancelled := time.Now(), d.isCancelled()
	r := d.record
	r.Graceful = !cancelled && d.blind == nil
	if d.blind != nil {
		r.Error = d.blind.Error()
	}
	for i := range r.Pods {
		p := &r.Pods[i]
		k := key{p.Runtime, p.ID}
		switch {
		case p.Outcome != "":
		case d.waiting[k] > 0:
			d.judge(i)
		case d.fresh && !running[k] && !cancelled: // by itself, or while no agent looked
			p.Outcome, p.FinishedAt = journal.Stopped, now
		case p.StartedAt.IsZero():
			p.Outcome = journal.Skipped
		default:
			p.Outcome = journal.Left
		}
		if d.fresh {
			p.ExitCodes = codes[k]
		}
		r.Graceful = r.Graceful && p.Outcome != journal.Left
	}
	if cancelled {
		r.CancelledAt = now
	} else {
		r.FinishedAt = now
	}
}

// noteLatecomers puts on record what came when there was no time left to stop it, a
// pod or a container of one that was stopped: nobody is to read that all went well.
func (d *Drain) noteLatecomers() {
	if !d.fresh || d.isCancelled() {
		return
	}
	for _, phase := range plan.New(d.phases, d.current, d.options.Rules, 0).Phases {
		for _, pod := range phase.Pods {
			record, came := d.entry(phase.Name, pod)
			unasked := func(c plan.PlannedContainer) bool { return d.ends[key{c.Runtime, c.ID}] == nil }
			switch {
			case came && d.spares(pod):
				record.Outcome = journal.Skipped
			case !d.spares(pod) && slices.ContainsFunc(pod.Containers, unasked):
				record.Outcome, record.Error = journal.Left, "came when no time was left to stop it"
				d.record.FinishedAt = time.Time{}
			}
		}
	}
}

// exitCodes are those of a pod's containers, by name: of several of one name,
// that of the latest. Nil if none has ended.
func exitCodes(p runtime.Pod) map[string]int32 {
	var codes map[string]int32
	for _, c := range p.Containers {
		if c.State != runtime.Exited || c.FinishedAt.IsZero() { // not told
			delete(codes, c.Name)
			continue
		}
		if codes == nil {
			codes = map[string]int32{}
		}
		codes[c.Name] = c.ExitCode
	}
	return codes
}

// judge sets the pod's outcome from those of its containers.
func (d *Drain) judge(at int) {
	p := &d.record.Pods[at]
	k := key{p.Runtime, p.ID}
	p.Outcome, p.Error, p.Stuck = journal.Stopped, "", nil
	for _, e := range d.ends {
		switch {
		case e.pod != k:
			continue
		case !e.done || e.err != nil:
			p.Stuck = append(p.Stuck, e.name)
			p.Outcome = journal.Left
			if e.err != nil {
				p.Error = e.err.Error()
			}
		case e.killed && p.Outcome == journal.Stopped:
			p.Outcome = journal.Killed
		}
	}
	slices.Sort(p.Stuck)
}

// errStillRuns is found where a runtime said that a container stopped.
var errStillRuns = errors.New("still runs although its runtime stopped it")

// verify corrects the outcomes by what the last list says, if it is to be
// trusted: exit code 137 is SIGKILL, as runtimes report it.
func (d *Drain) verify() {
	if !d.fresh || !d.settled {
		return
	}
	for _, p := range d.current {
		for _, c := range p.Containers {
			e, ok := d.ends[key{c.Runtime, c.ID}]
			if !ok {
				continue
			}
			switch {
			case c.State == runtime.Exited:
				if !c.FinishedAt.IsZero() { // else its end was not told
					e.killed = c.ExitCode == 137
				}
				e.done, e.err = true, nil
			case c.State == runtime.Running && e.done && e.err == nil:
				e.err = errStillRuns
			}
		}
	}
	asked := map[key]bool{}
	for _, e := range d.ends {
		asked[e.pod] = true
	}
	for k := range asked {
		d.judge(d.index[k])
	}
}

// stuck names the containers that were asked to stop and have not.
func (d *Drain) stuck() []string {
	var names []string
	for _, e := range d.ends {
		if !e.done || e.err != nil {
			p := d.record.Pods[d.index[e.pod]]
			names = append(names, p.Namespace+"/"+p.Name+"/"+e.name)
		}
	}
	slices.Sort(names)
	return names
}

// shortened tells by how much the phases were fitted; nil if not at all.
func shortened(o Options, fitted []plan.PhaseSpec) *journal.Shortened {
	wanted, had := plan.Total(o.Phases), plan.Total(fitted)
	if had >= wanted {
		return nil
	}
	return &journal.Shortened{
		Granted: metav1.Duration{Duration: o.Granted},
		Wanted:  metav1.Duration{Duration: wanted},
		Had:     metav1.Duration{Duration: had},
	}
}
