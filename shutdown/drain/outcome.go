package drain

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// note takes in what a pod's goroutines tell.
func (d *Drain) note(calls context.Context, r result) {
	switch {
	case r.torn != nil:
		d.noteTorn(calls, r)
	case r.asked != key{}:
		d.noteTurns(r.pod, map[string]time.Time{r.asked.id: r.at})
	default:
		d.noteEnds(calls, r)
	}
	if r.torn == nil || r.torn.last {
		d.options.Publish(d.record.Clone())
	}
}

// noteTurns writes down when containers were asked to end, for a process that may have to
// go on with this drain, or to start them again.
func (d *Drain) noteTurns(pod key, turns map[string]time.Time) {
	p := &d.record.Pods[d.index[pod]]
	p.Asked = with(p.Asked, turns)
}

// with is a copy of known with more in it: what was published has the old one.
func with[V any](known, more map[string]V) map[string]V {
	if len(more) == 0 {
		return known
	}
	all := maps.Clone(known)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, more)
	return all
}

// also is a copy of known with an ID in it, once: what was published has the old one.
func also(known []string, id string) []string {
	if slices.Contains(known, id) {
		return known
	}
	return append(slices.Clone(known), id)
}

// noteUnasked writes down who is left for the next process to ask. Where that is all of a pod
// the pod was never begun with: it is not to be killed unasked where its phase is over by then.
func (d *Drain) noteUnasked(pod key, ends []containerEnd) {
	p := &d.record.Pods[d.index[pod]]
	turns, late := map[string]time.Time{}, map[string]time.Time{}
	for _, e := range ends {
		if _, noted := p.Asked[e.key.id]; noted {
			turns[e.key.id] = time.Time{}
		} else {
			late[e.key.id] = time.Time{}
		}
	}
	p.Asked, p.Late = with(p.Asked, turns), with(p.Late, late)
	_, begun := d.resumed[pod]
	for _, e := range d.ends {
		if e.pod == pod {
			turn, noted := turnOf(*p, e.key.id)
			begun = begun || !noted || !turn.IsZero()
		}
	}
	if !begun {
		p.StartedAt = time.Time{}
	}
}

// turnOf is when a container was asked, where that is noted for it alone.
func turnOf(p journal.PodRecord, id string) (turn time.Time, noted bool) {
	if turn, noted = p.Asked[id]; !noted {
		turn, noted = p.Late[id]
	}
	return turn, noted
}

// conclude gives every pod its outcome and says how the drain went.
func (d *Drain) conclude() {
	d.verify()
	d.noteLatecomers()
	if !d.record.FinishedAt.IsZero() && !d.isCancelled() {
		return // it was before, and nothing ran since
	}
	running, cut := map[key]bool{}, map[key]bool{}
	codes, ends := map[key]map[string]int32{}, map[key]time.Time{}
	for _, p := range d.current {
		k := key{p.Runtime, p.ID}
		running[k], codes[k], ends[k] = plan.Runs(p), exitCodes(p), d.lastEnd(p)
		cut[k] = slices.ContainsFunc(p.Containers, func(c runtime.Container) bool { return c.ExitCode == 137 && d.endedHere(c) && d.wasAsked(p, c) })
	}
	now, cancelled, asked := time.Now(), d.isCancelled(), d.asked()
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
		case d.group(k).busy():
			d.judge(i)
		case d.told(p.Runtime) && !running[k] && !cancelled: // by itself, or while no agent looked
			p.Outcome, p.FinishedAt = journal.Stopped, cmp.Or(ends[k], now)
			if p.FinishedAt.Before(p.StartedAt) { // between the list and the order
				p.FinishedAt = p.StartedAt
			}
			if asked[k] {
				d.judge(i)
			}
		case cancelled && p.StartedAt.IsZero():
			p.Outcome = journal.Skipped
		default:
			p.Outcome = journal.Left
		}
		if d.told(p.Runtime) {
			p.ExitCodes = codes[k]
			if p.Outcome == journal.Stopped && cut[k] && !p.StartedAt.IsZero() { // by an earlier process
				p.Outcome = journal.Killed
			}
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
	if d.isCancelled() {
		return
	}
	for _, phase := range plan.New(d.phases, d.current, d.options.Rules, 0).Phases {
		for _, pod := range phase.Pods {
			if !d.told(pod.Runtime) {
				continue
			}
			record, came := d.entry(phase.Name, pod)
			unasked := func(c plan.PlannedContainer) bool { return d.isUnasked(pod.Pod, c.Container) }
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

// lastEnd is when the last of a pod's containers ended, where the runtime tells: within this
// drain, or it is not to be believed.
func (d *Drain) lastEnd(p runtime.Pod) (at time.Time) {
	for _, c := range p.Containers {
		if c.FinishedAt.After(at) && d.endedHere(c) {
			at = c.FinishedAt
		}
	}
	return at
}

// endedHere tells whether a container ended within this drain, by what its runtime tells.
func (d *Drain) endedHere(c runtime.Container) bool {
	return c.State == runtime.Exited && c.FinishedAt.After(d.record.StartedAt) && !c.FinishedAt.After(time.Now())
}

// wasAsked tells whether a container had been asked to end when it did.
func (d *Drain) wasAsked(p runtime.Pod, c runtime.Container) bool {
	at, known := d.index[key{p.Runtime, p.ID}]
	if !known {
		return false
	}
	turn, noted := turnOf(d.record.Pods[at], c.ID)
	return noted && !turn.IsZero() && !c.FinishedAt.Before(turn)
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
	if !d.settled {
		return
	}
	for _, p := range d.current {
		if !d.told(p.Runtime) {
			continue
		}
		for _, c := range p.Containers {
			e, ok := d.ends[key{c.Runtime, c.ID}]
			if !ok {
				continue
			}
			switch {
			case c.State == runtime.Exited:
				if !c.FinishedAt.IsZero() && c.ExitCode >= 0 { // else nobody saw how it ended
					e.killed = c.ExitCode == 137
				}
				e.done, e.err = true, nil
			case c.State == runtime.Running && e.done && e.err == nil && d.fresh: // others may be from before the stop
				e.err = errStillRuns
			}
		}
	}
	for k := range d.asked() {
		if d.told(k.runtime) {
			d.judge(d.index[k])
		}
	}
}

// asked are the pods of which a container was asked to end.
func (d *Drain) asked() map[key]bool {
	pods := map[key]bool{}
	for _, e := range d.ends {
		pods[e.pod] = true
	}
	return pods
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
