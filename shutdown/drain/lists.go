package drain

import (
	"context"
	"errors"
	"slices"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// listing is the result of one list of pods.
type listing struct {
	pods        []runtime.Pod
	unreachable func(runtime string) bool // runtimes that did not answer; their pods are from an earlier list
	err         error
	at          time.Time // when the list was requested
	quiet       bool      // no stop was running then
	after       int       // number of stops that had started then
}

// lists has the results of listing pods. Run's goroutine owns it.
type lists struct {
	answers     chan listing
	polling     bool // a list is being requested
	current     []runtime.Pod
	fresh       bool                      // every runtime answered for the current list
	unreachable func(runtime string) bool // runtimes that did not answer; nil before the first list
	complete    bool                      // every runtime answered for at least one list
	failure     error                     // why no list was complete
	settled     bool                      // the latest list was made when no stop was running, and shows nothing new
}

// firstList gets the first list. If the runtimes do not answer soon, it uses the last known pods.
// If a grace period is missing in them, it waits for one more list, because the period cannot be
// changed after the stop.
func (d *Drain) firstList(ctx context.Context) {
	again := false
	known, ok := d.options.Roster.Last()
	wait, until := quickList, time.Now()
	switch {
	case !ok:
		wait, until = listBound, time.Now().Add(firstListBound)
	case !d.record.FinishedAt.IsZero():
		wait = listBound // the known pods may be older
	case d.schedule.lead > 0:
		wait = listBound // the runtime may stop after this list
	case d.options.Roster.outdated():
		wait = min(listBound, d.schedule.slack) // a new container may have to stop before others
	}
	over := d.schedule.deadline.Add(-2 * d.schedule.slack) // less if little time is granted
	for {
		bound := time.Now().Add(wait)
		if bound.After(over) {
			bound = over
		}
		l, end := d.nextList(ctx, bound)
		switch {
		case end == cancelled, end == ended:
			return
		case end == reached:
			d.lists.settled = true
			if !again && l.err == nil && lacksGrace(d.lists.current) {
				known, ok, again, wait = d.lists.current, true, true, min(listBound, d.schedule.slack)
				continue
			}
			if l.err == nil || ok || len(l.pods) > 0 || time.Now().After(until) {
				return
			}
		case time.Now().Before(over) && ok && !again && lacksGrace(known):
			again, wait = true, min(listBound, d.schedule.slack) // wait for the list that is already requested
		case ok:
			d.lists.current = known // use the last known pods
			return
		case !time.Now().Before(over):
			return
		}
	}
}

// lacksGrace reports whether facts of a running container are missing, such as its grace period.
func lacksGrace(pods []runtime.Pod) bool {
	for _, p := range pods {
		if slices.ContainsFunc(p.Containers, func(c runtime.Container) bool { return c.Incomplete && c.State == runtime.Running }) {
			return true
		}
	}
	return false
}

// relist requests a list of pods, unless one is already requested.
func (d *Drain) relist(ctx context.Context) {
	if d.lists.polling {
		return
	}
	d.lists.polling = true
	at, quiet, after := time.Now(), d.progress.inPhase == 0, d.progress.started
	bound, first := min(listBound, d.schedule.slack), !d.lists.complete
	if first || d.progress.inPhase > 0 {
		// A host that shuts down is busy, and the known pods may be outdated. As long as containers
		// are being stopped, nothing waits for the list.
		bound = max(bound, min(firstListBound, time.Until(d.schedule.end(d.progress.phase, d.progress.overran))/2))
	}
	go func() {
		list, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		pods, unreachable, err := d.options.Roster.list(list)
		if err != nil && first && !isIdle(err) {
			_ = bounded.Sleep(ctx, retryPause) // a list is repeated, but not at once
		}
		select {
		case d.lists.answers <- listing{pods, unreachable, err, at, quiet, after}:
		case <-d.life.over:
		}
	}()
}

// isIdle reports whether all failed runtimes are inactive and must not be started.
func isIdle(err error) bool {
	var failed *runtime.SetError
	return errors.As(err, &failed) && !slices.ContainsFunc(failed.Failed, func(f runtime.MemberError) bool { return !errors.Is(f.Err, runtime.ErrNotRunning) })
}

// settles reports whether l shows the host after the last stop, if l caused no further stops. A
// failed list counts, too, except in the first seconds.
func (d *Drain) settles(l listing) bool {
	switch {
	case d.progress.inPhase > 0:
		return false
	case l.err != nil:
		return d.lists.complete || isIdle(l.err) || time.Since(d.schedule.start) >= firstListBound/2
	}
	return l.quiet && l.after == d.progress.started
}

// take makes l the current list.
func (d *Drain) take(l listing) {
	d.lists.polling = false
	d.lists.fresh, d.lists.unreachable = l.err == nil, l.unreachable
	switch {
	case d.lists.fresh:
		d.lists.complete, d.lists.failure = true, nil
	case !d.lists.complete:
		d.lists.failure = l.err
	}
	d.takeOver(l.pods, d.lists.answered, true)
	for _, p := range l.pods {
		d.notePending(p)
	}
	d.forgetEnded(l.at)
}

// forgetEnded removes pending stops of containers that are not running in the current list. It does
// so only if the list was requested after the container was seen, because older lists may be
// outdated.
func (d *Drain) forgetEnded(requested time.Time) {
	alive := map[key]bool{}
	for _, p := range d.lists.current {
		for _, c := range p.Containers {
			alive[key{c.Runtime, c.ID}] = plan.Alive(c)
		}
	}
	for _, p := range d.pods {
		for _, c := range p.containers {
			if d.lists.answered(p.runtime) && !alive[key{p.runtime, c.ID}] && !requested.Before(c.pendingSince) {
				c.pendingSince = time.Time{}
			}
		}
	}
}

// answered reports whether a runtime has answered the current list.
func (l *lists) answered(runtime string) bool { return l.unreachable != nil && !l.unreachable(runtime) }

// takeOver sets the current list. own reports that the drain requested it. For runtimes that did
// not answer, pods has the last known ones, and the state of their containers does not change.
func (d *Drain) takeOver(pods []runtime.Pod, answered func(runtime string) bool, own bool) {
	d.lists.current = pods
	alive := map[key]bool{}
	for _, listed := range pods {
		p := d.podOf(listed)
		for _, l := range listed.Containers {
			c := p.containers[l.ID]
			// Before checkRun, which may clear the run.
			alive[key{p.runtime, l.ID}] = plan.Alive(l) && (c == nil || !c.isAnotherRun(l))
			if c != nil && answered(p.runtime) {
				d.checkRun(c, l, own)
			}
		}
	}
	for _, p := range d.pods {
		for _, c := range p.containers {
			if c.gone != nil && answered(p.runtime) && !alive[key{p.runtime, c.ID}] {
				close(c.gone)
				c.gone = nil
			}
		}
	}
}

// checkRun notes that a container must be stopped again if it has ended and runs again. A runtime
// may have reported an end that no list has shown, so that does not count. Lists that show the
// stopped run are outdated. Lists that the drain did not request may be outdated if they do not
// identify the run.
func (d *Drain) checkRun(c *container, listed runtime.Container, own bool) {
	began := runOf(listed)
	switch {
	case !c.state.over():
	case !plan.Alive(listed):
		c.dead = true
	case c.isAnotherRun(listed), c.dead && began.IsZero() && own, c.dead && !began.IsZero() && !began.Equal(c.StartedAt):
		d.become(c, Unrequested)
		c.dead, c.restarted = false, true
	}
}
