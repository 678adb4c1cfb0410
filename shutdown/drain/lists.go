package drain

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// Runtime is what a drain needs of the host's container runtimes. A list that
// comes with an error is taken as what some of them answered.
type Runtime interface {
	runtime.PodLister
	runtime.Stopper
}

// Roster lists pods and remembers them for when a runtime hangs.
type Roster struct {
	Runtime

	mu   sync.Mutex
	pods []runtime.Pod // guarded by mu
	ok   bool          // guarded by mu: pods was listed at least once
	told time.Time     // guarded by mu: when somebody else listed them

	changes int // guarded by mu: of which somebody has told
	listed  int // guarded by mu: those that pods has
}

// List asks the runtimes until ctx ends. Where one does not answer, its pods
// are those last known, and the error says so.
func (r *Roster) List(ctx context.Context) ([]runtime.Pod, error) {
	pods, _, err := r.list(ctx)
	return pods, err
}

// list is List, and tells which runtimes did not answer.
func (r *Roster) list(ctx context.Context) (pods []runtime.Pod, silent func(name string) bool, err error) {
	type answer struct {
		pods []runtime.Pod
		err  error
	}
	// The call ends before ctx does, to bring what the other runtimes answered.
	inner, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		inner, cancel = context.WithTimeout(ctx, time.Until(deadline)*4/5)
	}
	defer cancel()
	answers := make(chan answer, 1)
	r.mu.Lock()
	changes := r.changes
	r.mu.Unlock()
	go func() {
		pods, err := r.Pods(inner)
		answers <- answer{pods, err}
	}()
	var got answer
	select {
	case got = <-answers:
	case <-ctx.Done():
		got.err = ctx.Err()
	}
	if got.err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if changes >= r.listed { // else somebody has listed them since who knows more
			r.pods, r.ok, r.listed = got.pods, true, changes
		}
		return got.pods, func(string) bool { return false }, nil
	}
	silent = silence(got.pods, got.err)
	known, _ := r.Last()
	for _, p := range known {
		if silent(p.Runtime) {
			got.pods = append(got.pods, p)
		}
	}
	return got.pods, silent, fmt.Errorf("list pods: %w", got.err)
}

// silence tells which runtimes did not answer a list that came with err: those
// that it names, where it names all, else those of which no pod is listed.
func silence(pods []runtime.Pod, err error) func(name string) bool {
	names := map[string]bool{}
	if failed, whole := err.(*runtime.SetError); whole { // one that is joined to another names not all
		for _, f := range failed.Failed {
			names[f.Runtime] = true
		}
		return func(name string) bool { return names[name] }
	}
	for _, p := range pods {
		names[p.Runtime] = true
	}
	return func(name string) bool { return !names[name] }
}

// Set notes the pods of all runtimes, listed by somebody else.
func (r *Roster) Set(pods []runtime.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods, r.ok, r.told, r.listed = pods, true, time.Now(), r.changes
}

// Change notes that pods came or went, which the next list has.
func (r *Roster) Change() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
}

// outdated tells whether pods came or went since they were listed.
func (r *Roster) outdated() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes > r.listed
}

// lately returns what somebody else has listed since, if anybody did.
func (r *Roster) lately(since time.Time) ([]runtime.Pod, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods, r.told.After(since)
}

// Last is what was listed last, and whether anything ever was.
func (r *Roster) Last() ([]runtime.Pod, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods, r.ok
}

// Bounded calls f and waits until it returns or ctx ends, even if f does not
// heed ctx.
func Bounded(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Sleep waits, or returns when ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Closed tells whether a channel that is only ever closed has been. A nil one never is.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// listing is the answer to one list of pods.
type listing struct {
	pods   []runtime.Pod
	silent func(runtime string) bool // of which pods has what was known before
	err    error
	at     time.Time // when it was asked for
	quiet  bool      // nothing was being stopped then
	after  int       // how many stops had begun then
}

// firstList begins with what is known if the runtime does not answer at once. Where that lacks
// how long a container may take to end, one more list may tell, for it is settled once the
// container is asked to.
func (d *Drain) firstList(ctx, calls context.Context) {
	again := false
	known, ok := d.options.Roster.Last()
	wait, until := quickList, time.Now()
	switch {
	case !ok:
		wait, until = listBound, time.Now().Add(firstListBound)
	case !d.record.FinishedAt.IsZero():
		wait = listBound // what was known may be from before it
	case d.lead > 0:
		wait = listBound // nobody may be there to be asked afterwards
	case d.options.Roster.outdated():
		wait = min(listBound, d.slack) // who came may have to end before the others
	}
	over := d.deadline.Add(-2 * d.slack) // of little time granted less than that is left
	for {
		bound := time.Now().Add(wait)
		if bound.After(over) {
			bound = over
		}
		l, end := d.nextList(ctx, calls, bound)
		switch {
		case end == cancelled, end == ended:
			return
		case end == reached:
			d.settled = true
			if !again && l.err == nil && untold(d.current) {
				known, ok, again, wait = d.current, true, true, min(listBound, d.slack)
				continue
			}
			if l.err == nil || ok || len(l.pods) > 0 || time.Now().After(until) {
				return
			}
		case time.Now().Before(over) && ok && !again && untold(known):
			again, wait = true, min(listBound, d.slack) // by the one that is under way
		case ok:
			d.current = known // which is better than nothing
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
	if d.polling {
		return
	}
	d.polling = true
	at, quiet, after := time.Now(), d.inPhase == 0, d.begun
	bound, first := min(listBound, d.slack), !d.heard
	if first || d.inPhase > 0 {
		// A host that goes down is busy, and what is known may be old. Nobody waits
		// for the list as long as containers are being stopped.
		bound = max(bound, min(firstListBound, time.Until(d.end(d.phase))/2))
	}
	go func() {
		list, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		pods, silent, err := d.options.Roster.list(list)
		if err != nil && first {
			Sleep(ctx, retryPause) // it will be asked again
		}
		select {
		case d.lists <- listing{pods, silent, err, at, quiet, after}:
		case <-d.over:
		}
	}()
}

// settles tells whether l, which led to no further stops, shows the host as it
// is after the last stop. One that failed is as good as there is, but for the
// first moments.
func (d *Drain) settles(l listing) bool {
	switch {
	case d.inPhase > 0:
		return false
	case l.err != nil:
		return d.heard || time.Since(d.options.Start) >= firstListBound/2
	}
	return l.quiet && l.after == d.begun
}

// take makes a list the current one.
func (d *Drain) take(l listing) {
	d.polling = false
	d.fresh, d.silent = l.err == nil, l.silent
	switch {
	case d.fresh:
		d.heard, d.blind = true, nil
	case !d.heard:
		d.blind = l.err
	}
	d.takeOver(l.pods, d.told, true)
	for _, p := range l.pods {
		d.owe(p)
	}
	d.strike(l.at)
}

// strike forgets what is owed to containers that a list does not show alive which was asked for
// since. Lists of others may be older than they seem.
func (d *Drain) strike(asked time.Time) {
	alive := map[key]bool{}
	for _, p := range d.current {
		for _, c := range p.Containers {
			alive[key{c.Runtime, c.ID}] = plan.Alive(c)
		}
	}
	for _, p := range d.pods {
		for _, c := range p.containers {
			if d.told(p.runtime) && !alive[key{p.runtime, c.ID}] && !asked.Before(c.owed) {
				c.owed = time.Time{}
			}
		}
	}
}

// told tells whether a runtime has answered the list that is the current one.
func (d *Drain) told(runtime string) bool { return d.silent != nil && !d.silent(runtime) }

// takeOver takes in the pods that runtimes have listed, to the drain's own question or to
// somebody else's, where those that have not answered are as they were known before.
func (d *Drain) takeOver(pods []runtime.Pod, answered func(runtime string) bool, own bool) {
	d.current = pods
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
