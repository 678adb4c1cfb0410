package drain

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// listing is the answer to one list of pods.
type listing struct {
	pods   []runtime.Pod
	silent func(runtime string) bool // of which pods has what was known before
	err    error
	at     time.Time // when it was asked for
	quiet  bool      // nothing was being stopped then
	after  int       // how many stops had begun then
}

// lists is what lists of pods have shown. Run's goroutine owns it.
type lists struct {
	answers chan listing
	polling bool // a list is under way
	current []runtime.Pod
	fresh   bool                      // current is what every runtime answered
	silent  func(runtime string) bool // which did not; nil before the first list
	heard   bool                      // all of them did, once or more
	blind   error                     // why no list was ever complete
	settled bool                      // the latest list was made with nothing running, and shows nothing new
}

// firstList begins with what is known if the runtime does not answer at once. Where that lacks
// how long a container may take to end, one more list may tell, for it is settled once the
// container is asked to.
func (d *Drain) firstList(ctx context.Context) {
	again := false
	known, ok := d.options.Roster.Last()
	wait, until := quickList, time.Now()
	switch {
	case !ok:
		wait, until = listBound, time.Now().Add(firstListBound)
	case !d.record.FinishedAt.IsZero():
		wait = listBound // what was known may be from before it
	case d.schedule.lead > 0:
		wait = listBound // nobody may be there to be asked afterwards
	case d.options.Roster.outdated():
		wait = min(listBound, d.schedule.slack) // who came may have to end before the others
	}
	over := d.schedule.deadline.Add(-2 * d.schedule.slack) // of little time granted less than that is left
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
			if !again && l.err == nil && untold(d.lists.current) {
				known, ok, again, wait = d.lists.current, true, true, min(listBound, d.schedule.slack)
				continue
			}
			if l.err == nil || ok || len(l.pods) > 0 || time.Now().After(until) {
				return
			}
		case time.Now().Before(over) && ok && !again && untold(known):
			again, wait = true, min(listBound, d.schedule.slack) // by the one that is under way
		case ok:
			d.lists.current = known // which is better than nothing
			return
		case !time.Now().Before(over):
			return
		}
	}
}

// untold tells whether a runtime has not said yet what it says by itself of a container that
// runs.
func untold(pods []runtime.Pod) bool {
	for _, p := range pods {
		if slices.ContainsFunc(p.Containers, func(c runtime.Container) bool { return c.Untold && c.State == runtime.Running }) {
			return true
		}
	}
	return false
}

// relist asks for the pods, unless a list is under way.
func (d *Drain) relist(ctx context.Context) {
	if d.lists.polling {
		return
	}
	d.lists.polling = true
	at, quiet, after := time.Now(), d.progress.inPhase == 0, d.progress.begun
	bound, first := min(listBound, d.schedule.slack), !d.lists.heard
	if first || d.progress.inPhase > 0 {
		// A host that goes down is busy, and what is known may be old. Nobody waits
		// for the list as long as containers are being stopped.
		bound = max(bound, min(firstListBound, time.Until(d.schedule.end(d.progress.phase, d.progress.overran))/2))
	}
	go func() {
		list, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		pods, silent, err := d.options.Roster.list(list)
		if err != nil && first {
			Sleep(ctx, retryPause) // it will be asked again
		}
		select {
		case d.lists.answers <- listing{pods, silent, err, at, quiet, after}:
		case <-d.life.over:
		}
	}()
}

// settles tells whether l, which led to no further stops, shows the host as it
// is after the last stop. One that failed is as good as there is, but for the
// first moments.
func (d *Drain) settles(l listing) bool {
	switch {
	case d.progress.inPhase > 0:
		return false
	case l.err != nil:
		return d.lists.heard || time.Since(d.schedule.start) >= firstListBound/2
	}
	return l.quiet && l.after == d.progress.begun
}

// take makes a list the current one.
func (d *Drain) take(l listing) {
	d.lists.polling = false
	d.lists.fresh, d.lists.silent = l.err == nil, l.silent
	switch {
	case d.lists.fresh:
		d.lists.heard, d.lists.blind = true, nil
	case !d.lists.heard:
		d.lists.blind = l.err
	}
	d.takeOver(l.pods, d.lists.told, true)
	for _, p := range l.pods {
		d.owe(p)
	}
	d.strike(l.at)
}

// strike forgets what is owed to containers that a list does not show alive which was asked for
// since. Lists of others may be older than they seem.
func (d *Drain) strike(asked time.Time) {
	alive := map[key]bool{}
	for _, p := range d.lists.current {
		for _, c := range p.Containers {
			alive[key{c.Runtime, c.ID}] = plan.Alive(c)
		}
	}
	for _, p := range d.pods {
		for _, c := range p.containers {
			if d.lists.told(p.runtime) && !alive[key{p.runtime, c.ID}] && !asked.Before(c.owed) {
				c.owed = time.Time{}
			}
		}
	}
}

// told tells whether a runtime has answered the list that is the current one.
func (l *lists) told(runtime string) bool { return l.silent != nil && !l.silent(runtime) }

// takeOver takes in the pods that runtimes have listed, to the drain's own question or to
// somebody else's, where those that have not answered are as they were known before.
func (d *Drain) takeOver(pods []runtime.Pod, answered func(runtime string) bool, own bool) {
	d.lists.current = pods
	alive := map[key]bool{}
	for _, listed := range pods {
		p := d.podOf(listed)
		for _, l := range listed.Containers {
			c := p.containers[l.ID]
			// Before it may be forgotten which run was asked.
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

// checkRun forgets the end of a container that runs again: its stop is to be requested like
// that of any that comes. Of one that no list has shown dead the runtime may be wrong about its
// end, and a list that shows the run that was asked is an old one, as one of somebody else may be
// that does not tell which run it shows.
func (d *Drain) checkRun(c *container, listed runtime.Container, own bool) {
	began := runOf(listed)
	switch {
	case !c.state.over():
	case !plan.Alive(listed):
		c.dead = true
	case c.isAnotherRun(listed), c.dead && began.IsZero() && own, c.dead && !began.IsZero() && !began.Equal(c.StartedAt):
		d.become(c, Unrequested)
		c.dead, c.anew = false, true
	}
}
