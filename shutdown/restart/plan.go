// Package restart starts containers after a boot: those that a shutdown's drain has stopped and
// that nothing else starts.
//
// It owns the decision, a pure function of the journal and of the runtimes' lists, and the calls
// that carry it out. It starts only containers that hostler stopped and that nothing has
// started or changed since.
package restart

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// Action is what is to be done about a container that a shutdown has stopped.
type Action string

// The actions.
const (
	Start Action = "start"
	Wait  Action = "wait"   // what it depends on is not known yet, or it is too early
	Leave Action = "settle" // there is nothing to do any more
)

// Facts are what a decision uses.
type Facts struct {
	Restarts []journal.Restart // as the journal has them
	Pods     []runtime.Pod     // as the runtimes list them
	// Unreachable reports which runtimes did not answer, or are not there.
	Unreachable func(runtime string) bool
	// Waited reports how long it is known that a container is pending, by no wall clock; nil if
	// only now.
	Waited func(journal.Restart) time.Duration
	// AnsweringFor reports for how long its runtime has answered without a break, up to now. It uses no
	// wall clock either.
	AnsweringFor func(journal.Restart) time.Duration
	// Unable reports which cannot start a container again; nil if all can.
	Unable func(runtime string) bool
	// Host is what is known of the host that containers are started on; nil if nothing is awaited.
	Host *HostFacts
	// Changed reports whether what a container needs of the host is different from what it was at
	// the last try to start it; nil if nothing is.
	Changed func(journal.Restart) bool
	// Never reports that nothing is to be started.
	Never bool
}

// Decision is what becomes of a container that is pending.
type Decision struct {
	Action  Action
	Restart journal.Restart // where there is nothing to do any more with its outcome
	// Container is the one to start, now or when that is Due.
	Container runtime.Container
	// After are the places, in the list of decisions, of those that it needs: they are to
	// be tried before.
	After []int
	// Due is when the next try is due of one that waits for that; zero for others.
	Due time.Time

	holds bool // those that need it wait, too
}

// maxTries is how often a start is tried.
const maxTries = 5

// margin is how much longer than its grace a container may take to end that was asked to.
const margin = 5 * time.Second

// holdBound is how long those that need a container wait for its runtime to list it.
const holdBound = 2 * time.Minute

// settleAfter is how long after it has answered a runtime may take to start what it starts at a
// boot. What it could not start, such as a container that shares the network of one that it leaves
// to others, is hostler's to start then.
const settleAfter = 10 * time.Second

// goneAfter is how long a runtime is waited for that does not answer.
const goneAfter = 24 * time.Hour

// missingFactsAfter is how long one is waited for that answers, and does not list a container
// what decides.
const missingFactsAfter = time.Hour

// listAge is above the age of a list that a drain uses.
const listAge = time.Minute

// byUnit is why nobody here starts a container of a unit.
const byUnit = "its systemd unit decides whether it starts"

// pauseAfter is how long after so many tries the next one is made: 5 s, and three times
// as long each time.
func pauseAfter(tries int) time.Duration {
	pause := 5 * time.Second
	for range tries - 1 {
		pause *= 3
	}
	return pause
}

// untilRetry is after how long a container is to be tried again; zero or less if it is due.
func untilRetry(r journal.Restart, now time.Time) time.Duration {
	if r.Tries == 0 {
		return 0
	}
	return pauseAfter(r.Tries) - now.Sub(r.TriedAt).Abs()
}

type key struct{ runtime, id string }

// Plan decides about all that is pending, in the order in which it is to be done: what
// stopped last is started first, and what is needed before what needs it.
func Plan(f Facts, now time.Time) []Decision {
	list := f.judgeAll(now)
	order(list, f.Pods)
	hold(list)
	return list
}

// judgeAll decides about each container that is pending as if it stood alone.
func (f Facts) judgeAll(now time.Time) []Decision {
	listed := map[key]runtime.Container{}
	for _, p := range f.Pods {
		for _, c := range p.Containers {
			listed[key{c.Runtime, c.ID}] = c
		}
	}
	var list []Decision
	for _, r := range f.Restarts {
		if r.Outcome == "" {
			c, there := listed[key{r.Runtime, r.ID}]
			list = append(list, f.judge(r, c, there, now))
		}
	}
	return list
}

// hold has those wait that need others which hold them up, or without which they cannot be started.
// One whose next try is not due is tried together with those.
func hold(list []Decision) {
	place := map[key]int{}
	for i, d := range list {
		place[key{d.Restart.Runtime, d.Restart.ID}] = i
	}
	for i := range list { // what is needed comes first
		d := &list[i]
		if d.Action != Start && d.Due.IsZero() {
			continue
		}
		held, joinsStart := -1, false
		for _, id := range d.Container.Joins {
			if n, pending := place[key{d.Restart.Runtime, id}]; pending && n < i {
				joinsStart = joinsStart || list[n].Action == Start
				if list[n].Action == Wait {
					held = n
				}
			}
		}
		for _, n := range d.After {
			if d.Action == Start && list[n].holds {
				held, d.holds = n, true
			}
		}
		switch {
		case held >= 0:
			d.Action, d.Container, d.Due = Wait, runtime.Container{}, time.Time{}
			d.Restart.Reason = "waits for container " + cmp.Or(list[held].Restart.Name, list[held].Restart.ID)
		case joinsStart:
			d.Action, d.Due = Start, time.Time{}
		}
	}
}

// judge decides about one container: c, if it is there.
func (f Facts) judge(r journal.Restart, c runtime.Container, there bool, now time.Time) Decision {
	r.Name = cmp.Or(c.Name, r.Name)
	leave := func(outcome journal.RestartOutcome, reason string) Decision {
		r.Outcome, r.At, r.Reason = outcome, now, reason
		return Decision{Action: Leave, Restart: r}
	}
	waited, answering := time.Duration(0), time.Duration(0)
	if f.Waited != nil {
		waited = f.Waited(r)
	}
	if f.AnsweringFor != nil {
		answering = f.AnsweringFor(r)
	}
	wait := func(reason string) Decision {
		r.Reason = reason
		return Decision{Action: Wait, Restart: r}
	}
	switch {
	case f.Never:
		return leave(journal.LeftStopped, "shutdown.restartAfterBoot is never")
	case f.Unreachable(r.Runtime) && waited >= goneAfter:
		return leave(journal.LeftStopped, "its runtime has not answered for a day")
	case f.Unreachable(r.Runtime):
		return wait(journal.AwaitsRuntime)
	case f.Unable != nil && f.Unable(r.Runtime):
		return leave(journal.LeftStopped, "its runtime cannot start it again")
	case !there && r.ByUnit:
		return leave(journal.LeftStopped, byUnit)
	case !there:
		return leave(journal.LeftStopped, "it was removed")
	case c.State == runtime.Running && r.HostLived && now.Sub(r.AskedAt).Abs() < r.Grace.Duration+margin:
		d := wait("waits for its stop, which was requested") // it may be about to come
		d.holds = r.Tries == 0
		return d
	case c.State == runtime.Running:
		return leave(journal.RunsAnyway, "")
	case r.Tries >= maxTries && ended(r, c):
		return leave(journal.RestartFailed, r.Reason)
	case missingFacts(r, c) != "" && answering >= missingFactsAfter:
		return leave(journal.RestartFailed, "for an hour "+missingFacts(r, c)+"; start it manually if it should run")
	case missingFacts(r, c) != "":
		d := wait("waits for its runtime: " + missingFacts(r, c))
		d.holds = r.Tries == 0 && answering < holdBound
		return d
	case !sameRun(r, c) && !c.StartedAt.Before(r.AskedAt):
		return leave(journal.LeftStopped, "it was started after the shutdown and has exited")
	case endedBefore(r, c) && !r.Restarting:
		return leave(journal.LeftStopped, "it had exited before the shutdown")
	case c.Restart == runtime.RestartByUnit, r.ByUnit:
		return leave(journal.LeftStopped, byUnit)
	case journal.StaysStopped(c.Restart.String(), r.HostLived) != "":
		return leave(journal.LeftStopped, journal.StaysStopped(c.Restart.String(), r.HostLived))
	case c.Restart == runtime.RestartByRuntime && !r.HostLived && r.Tries == 0 && answering < settleAfter:
		d := wait("waits in case its runtime starts it")
		d.holds = true
		return d
	}
	if pause := untilRetry(r, now); pause > 0 && (f.Changed == nil || !f.Changed(r)) {
		d := wait(r.Reason)
		d.Container, d.Due = c, now.Add(pause)
		return d
	}
	if reason, queued := f.Host.awaited(r, waited); reason != "" {
		if waited >= goneAfter {
			return leave(journal.RestartFailed, "after a day it still "+reason)
		}
		d := wait(reason)
		d.holds = queued
		return d
	}
	return Decision{Action: Start, Restart: r, Container: c}
}

// missingFacts says what has to be known of a container that does not run before it is decided
// about; empty where all is.
func missingFacts(r journal.Restart, c runtime.Container) string {
	switch {
	case !ended(r, c):
		return fmt.Sprintf("its runtime reports it as %v, not as exited", c.State)
	case c.StartedAt.IsZero():
		return "its runtime has not reported its last run"
	case c.Restart == runtime.RestartUnknown:
		return "its restart policy is unknown"
	}
	return ""
}

// ended reports whether a container has ended and waits to be started. A start that failed or
// was cut off may have left it made ready.
func ended(r journal.Restart, c runtime.Container) bool {
	return c.State == runtime.Exited || c.State == runtime.Created && r.Tries > 0
}

// sameRun reports whether a container's last run is known to be the one that was asked to
// end. Where it is not, as of one that was started between two lists, the order of times
// decides: no clock that was set meanwhile can keep down what surely ran.
func sameRun(r journal.Restart, c runtime.Container) bool {
	return !r.StartedAt.IsZero() && c.StartedAt.Equal(r.StartedAt)
}

// endedBefore reports whether a container had ended when it was asked to: the list that a
// drain uses is a moment old. Of a run that was in that list, an end long before says
// that the clock was set: dockerd takes for the end of what it did not see end the moment at
// which it starts, which may be before a host without a battery knows the time. Podman says
// none of what it did not see end.
func endedBefore(r journal.Restart, c runtime.Container) bool {
	if c.FinishedAt.IsZero() || c.FinishedAt.Before(c.StartedAt) { // that was an earlier run's
		return false
	}
	before := r.AskedAt.Sub(c.FinishedAt)
	if sameRun(r, c) && before > listAge {
		return false
	}
	return before > 0
}

// order sorts the list: high priority first, and within it what is needed before what needs it, by
// groups of pods that need each other.
func order(list []Decision, pods []runtime.Pod) {
	group, members := map[key]key{}, map[key]runtime.Pod{}
	for i, first := range plan.Groups(pods) {
		of, p := key{first.Runtime, first.ID}, pods[i]
		group[key{p.Runtime, p.ID}] = of
		together := members[of]
		together.Containers = append(together.Containers, p.Containers...)
		members[of] = together
	}
	of := func(d Decision) key {
		pod := key{d.Restart.Runtime, d.Restart.Pod}
		if first, listed := group[pod]; listed {
			return first
		}
		return pod
	}
	slices.SortStableFunc(list, func(a, b Decision) int {
		return cmp.Or(cmp.Compare(b.Restart.Priority, a.Restart.Priority),
			cmp.Compare(of(a).runtime, of(b).runtime), cmp.Compare(of(a).id, of(b).id))
	})
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && of(list[to]) == of(list[from]) && list[to].Restart.Priority == list[from].Restart.Priority {
			to++
		}
		orderGroup(list[from:to], from, members[of(list[from])])
		from = to
	}
}

// orderGroup sorts the decisions about a group of pods, the first of which stands at a place of the
// list.
func orderGroup(list []Decision, place int, group runtime.Pod) {
	ids := make([]string, len(list))
	for i, d := range list {
		ids[i] = d.Restart.ID
	}
	needs := plan.Needs(group, ids)
	depth := plan.Heaviest(needs, len(list), func(int) int { return 1 })
	at := make([]int, len(list)) // places before, in their new order
	for i := range list {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(depth[a], depth[b]) })
	now := make([]int, len(list))
	for i, before := range at {
		now[before] = place + i
	}
	old := slices.Clone(list)
	for i, before := range at {
		list[i] = old[before]
		for _, n := range needs[before] {
			list[i].After = append(list[i].After, now[n])
		}
	}
}
