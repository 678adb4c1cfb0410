// Package restart starts containers after a boot: those that a drain at shutdown stopped, and that
// nothing else starts.
//
// It owns the decision, a pure function of the journal and the runtimes' lists, and the calls to
// the runtimes. It starts only containers that hostler stopped and that nothing has started or
// changed since.
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

// Action is what to do about a container that a shutdown stopped.
type Action string

// The actions.
const (
	Start Action = "start"
	Wait  Action = "wait"   // its dependencies are not ready or unknown, or it is too early
	Leave Action = "settle" // nothing more to do
)

// Facts is the input of a decision.
type Facts struct {
	Restarts []journal.Restart // from the journal
	Pods     []runtime.Pod     // from the runtimes
	// Unreachable reports which runtimes did not answer, or do not exist.
	Unreachable func(runtime string) bool
	// Waited returns how long the container has been known as pending. It does not use the wall
	// clock. If it is nil, the time is zero.
	Waited func(journal.Restart) time.Duration
	// AnsweringFor returns for how long its runtime has answered without interruption. It does not
	// use the wall clock.
	AnsweringFor func(journal.Restart) time.Duration
	// Unable reports which runtimes cannot start containers again; nil if all can.
	Unable func(runtime string) bool
	// Host has the dependencies on the host; nil if nothing depends on it.
	Host *HostFacts
	// Changed reports whether the dependencies of a container on the host have changed since the
	// last attempt to start it; nil if none have.
	Changed func(journal.Restart) bool
	// Starting reports whether a start of the container is running; nil if none is.
	Starting func(journal.Restart) bool
	// Never disables all starts.
	Never bool
}

// Decision is the decision about a pending container.
type Decision struct {
	Action  Action
	Restart journal.Restart // with its outcome if Action is Leave
	// Container is the container to start, now or at Due.
	Container runtime.Container
	// After has the indexes, in the list of decisions, of the containers that it needs. They must
	// be tried first.
	After []int
	// Due is when the next attempt is due, if it only waits for that; otherwise zero.
	Due time.Time

	holds bool // containers that need this one must wait, too
}

// maxTries is the maximum number of attempts to start a container.
const maxTries = 5

// margin is how much longer than its grace period a container may take to stop.
const margin = 5 * time.Second

// holdBound is how long containers wait for a container that they need, if its runtime does not
// list it.
const holdBound = 2 * time.Minute

// settleAfter is how long a runtime may take, after its first answer, to start its own containers
// after a boot. After that, hostler starts what the runtime could not start. An example is a
// container that shares the network of one that the runtime does not start.
const settleAfter = 10 * time.Second

// goneAfter is how long to wait for a runtime that does not answer.
const goneAfter = 24 * time.Hour

// missingFactsAfter is how long to wait for facts about a container that an answering runtime does
// not report.
const missingFactsAfter = time.Hour

// listAge is more than the age of any list that a drain uses.
const listAge = time.Minute

// byUnit is why hostler does not start a container of a unit.
const byUnit = "its systemd unit decides whether it starts"

// pauseAfter is the pause before the next attempt: 5 s after the first one, and three times as long
// after each further one.
func pauseAfter(tries int) time.Duration {
	pause := 5 * time.Second
	for range tries - 1 {
		pause *= 3
	}
	return pause
}

// untilRetry returns the time until the next attempt; zero or less if it is due.
func untilRetry(r journal.Restart, now time.Time) time.Duration {
	if r.Tries == 0 {
		return 0
	}
	return pauseAfter(r.Tries) - now.Sub(r.TriedAt).Abs()
}

type key struct{ runtime, id string }

// Plan decides about all pending containers. The result is in start order: high priority first, and
// containers before those that need them.
func Plan(f Facts, now time.Time) []Decision {
	list := f.judgeAll(now)
	order(list, f.Pods)
	hold(list)
	return list
}

// judgeAll decides about each pending container independently of the others.
func (f Facts) judgeAll(now time.Time) []Decision {
	listed := containers(f.Pods)
	var list []Decision
	for _, r := range f.Restarts {
		if r.Outcome == "" {
			c, there := listed[key{r.Runtime, r.ID}]
			list = append(list, f.judge(r, c, there, now))
		}
	}
	return list
}

func containers(pods []runtime.Pod) map[key]runtime.Container {
	listed := map[key]runtime.Container{}
	for _, p := range pods {
		for _, c := range p.Containers {
			listed[key{c.Runtime, c.ID}] = c
		}
	}
	return listed
}

// hold makes containers wait for those that they need. A container that joins another one, and only
// waits for its next attempt, is tried together with that one.
func hold(list []Decision) {
	place := map[key]int{}
	for i, d := range list {
		place[key{d.Restart.Runtime, d.Restart.ID}] = i
	}
	for i := range list { // containers that others need come first in the list
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

// judge decides about one container. c is its state, if it is listed.
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
	case f.Starting != nil && f.Starting(r):
		d := wait(r.Reason)
		d.holds = r.Tries <= 1 // this attempt counts
		return d
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
	case c.State == runtime.Running && r.HostLived && f.mayStop(r, c, answering, now):
		d := wait("waits for its stop, which was requested")
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
	if reason, queued := f.Host.waitsFor(r, waited); reason != "" {
		if waited >= goneAfter {
			return leave(journal.RestartFailed, "after a day it still "+reason)
		}
		d := wait(reason)
		d.holds = queued
		return d
	}
	return Decision{Action: Start, Restart: r, Container: c}
}

// mayStop reports whether a running container may be about to stop. A runtime that hung may carry out a stop only when
// it answers again.
func (f Facts) mayStop(r journal.Restart, c runtime.Container, answering time.Duration, now time.Time) bool {
	takes := r.Grace.Duration + margin
	late := f.AnsweringFor != nil && sameRun(r, c) && answering < takes
	return late || now.Sub(r.AskedAt).Abs() < takes
}

// missingFacts returns which fact about a stopped container is missing for a decision; empty if
// none is.
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

// ended reports whether a container has ended, so that it can be started. After a failed or
// interrupted start, its state may be Created.
func ended(r journal.Restart, c runtime.Container) bool {
	return c.State == runtime.Exited || c.State == runtime.Created && r.Tries > 0
}

// sameRun reports whether the last run of a container is known to be the one that was stopped.
// Otherwise, for example because the run began between two lists, the times decide. A container
// that certainly ran is started again, even if the clock was changed.
func sameRun(r journal.Restart, c runtime.Container) bool {
	return !r.StartedAt.IsZero() && c.StartedAt.Equal(r.StartedAt)
}

// endedBefore reports whether a container had ended before its stop was requested. A drain uses a
// list that may be some seconds old. If the run was in that list, but seems to have ended long
// before, the clock was changed. For containers whose end dockerd did not see, it records its own
// start as their end. On a host without a battery for its clock, that may be before the time is
// set. Podman records no end for such containers.
func endedBefore(r journal.Restart, c runtime.Container) bool {
	if c.FinishedAt.IsZero() || c.FinishedAt.Before(c.StartedAt) { // the end of an earlier run
		return false
	}
	before := r.AskedAt.Sub(c.FinishedAt)
	if sameRun(r, c) && before > listAge {
		return false
	}
	return before > 0
}

// order sorts the list: high priority first, then by groups of pods that need each other. In a
// group, containers come before those that need them.
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

// orderGroup sorts the decisions about a group of pods. place is the index of the first one in the
// whole list.
func orderGroup(list []Decision, place int, group runtime.Pod) {
	ids := make([]string, len(list))
	for i, d := range list {
		ids[i] = d.Restart.ID
	}
	needs := plan.Needs(group, ids)
	depth := plan.Heaviest(needs, len(list), func(int) int { return 1 })
	at := make([]int, len(list)) // previous indexes, in the new order
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
