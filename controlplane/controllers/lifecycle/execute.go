package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// leadership is a term, as long as ctx lasts.
type leadership struct {
	ctx   context.Context
	term  store.Term
	ended chan struct{} // closed when the last write has returned
}

// Lead executes decisions under a term until ctx ends. When it returns no write is in flight. Run must
// be running.
func (c *Controller) Lead(ctx context.Context, term store.Term) error {
	lead := &leadership{ctx: ctx, term: term, ended: make(chan struct{})}
	select {
	case c.leads <- lead:
		<-lead.ended
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("the controller has stopped")
}

// Run decides until ctx ends, and executes while Lead lasts. heartbeat receives how each decision went.
func (c *Controller) Run(ctx context.Context, heartbeat func(error)) error {
	e := executor{
		Controller: c, heartbeat: heartbeat, due: map[string]time.Time{}, done: make(chan result, calls), checked: make(chan result, calls), checking: map[string]bool{},
		inFlight: map[string]bool{}, held: map[string]hold{}, lastTainted: map[string]time.Time{},
	}
	defer e.end()
	defer func() {
		for range e.checking {
			<-e.checked
		}
	}()
	return e.run(ctx)
}

// executor executes decisions. The goroutine of Run owns its fields.
type executor struct {
	*Controller
	heartbeat   func(error)
	lead        *leadership // nil while another replica leads
	waiting     []Change
	inFlight    map[string]bool
	done        chan result
	doubts      []string // hosts whose Leases have to be read
	checking    map[string]bool
	checked     chan result
	held        map[string]hold      // by Node
	lastTainted map[string]time.Time // by zone
	allDown     bool
	restart     time.Time            // no host is judged by the time before: all zones were down
	due         map[string]time.Time // since when changes of Nodes are due
	writes      Writes
}

// result is how a write ended.
type result struct {
	change Change
	err    error
}

// hold leaves a Node alone for a while, as long as it has that version.
type hold struct {
	version string
	until   time.Time
	pause   time.Duration // after a write that failed
	err     error
}

func (e *executor) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := time.Time{}
	for {
		e.start()
		e.check(ctx)
		select {
		case lead := <-e.leads:
			e.end() // of an earlier term, if any
			e.lead = lead
			timer.Reset(0)
		case <-e.leadEnds():
			e.end()
		case r := <-e.done:
			e.finish(r, time.Now())
		case r := <-e.checked:
			delete(e.checking, r.change.Node)
			if r.err != nil {
				e.fail(r, time.Now())
				e.changed.Send()
			}
		case <-e.changed:
			timer.Reset(max(time.Until(last.Add(spacing)), 0))
		case <-timer.C:
			last = time.Now()
			timer.Reset(e.decide(last))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leadEnds is closed when the term is over; nil, which blocks for ever, without one.
func (e *executor) leadEnds() <-chan struct{} {
	if e.lead == nil {
		return nil
	}
	return e.lead.ctx.Done()
}

// end waits for the writes of a term, which end with its context, and reports that it is over.
func (e *executor) end() {
	e.waiting = nil
	for len(e.inFlight) > 0 {
		e.finish(<-e.done, time.Now())
	}
	if e.lead != nil {
		close(e.lead.ended)
		e.lead = nil
	}
}

// decide plans, queues what is to be written now, and returns how long to wait for the next decision.
func (e *executor) decide(now time.Time) time.Duration {
	policy := e.currentPolicy()
	d, doubts, err := e.plan(policy, now)
	e.waiting, e.doubts = nil, doubts // what is due still is decided again
	e.heartbeat(err)
	if err != nil {
		e.publish(Report{At: now, Paused: err.Error()})
		return time.Second
	}
	if e.allDown && !d.AllDown {
		// Hosts that were cut off with the others get their whole grace period.
		e.restart = now
		if d, e.doubts, err = e.plan(policy, now); err != nil {
			return time.Second
		}
	}
	e.allDown = d.AllDown
	maps.DeleteFunc(e.held, func(_ string, h hold) bool { return now.Sub(h.until) > lastRetry })
	e.doubts = slices.DeleteFunc(e.doubts, func(name string) bool {
		h := e.held[name]
		return e.checking[name] || h.err != nil && now.Before(h.until)
	})
	next := d.Next
	for _, change := range d.Now {
		switch h := e.held[change.Node]; {
		case e.inFlight[change.Node]:
		case h.version == change.Version && now.Before(h.until):
			if next.IsZero() || h.until.Before(next) {
				next = h.until
			}
		default:
			e.waiting = append(e.waiting, change)
		}
	}
	e.publish(Report{At: now, Decision: d, OldestDue: e.oldestDue(d, now)})
	wait := policy.MonitorPeriod
	if !next.IsZero() {
		wait = min(wait, max(next.Sub(now), spacing))
	}
	return wait
}

// plan is the decision at this moment, and the hosts whose Leases have to be read before they count as
// dead. The error says why there is none.
func (e *executor) plan(policy Policy, now time.Time) (Decision, []string, error) {
	since, ok := e.contact.Since(now)
	switch {
	case !ok:
		return Decision{}, nil, errors.New("the store does not answer")
	case !e.cache.Synced():
		return Decision{}, nil, errors.New("reading Nodes and Leases")
	}
	clock := Clock{Now: now, Since: latest(since, e.restart), Again: latest(e.contact.Regained(), e.restart)}
	hosts, doubts := e.cache.Hosts(policy, clock)
	checking := slices.ContainsFunc(doubts, func(name string) bool { return e.held[name].err == nil })
	return Decide(Facts{Hosts: hosts, LastTainted: e.lastTainted, Checking: checking}, policy, now), doubts, nil
}

// start begins writes that wait, as many as may run at once. A NoExecute taint counts against the rate
// of its zone from now on, whether it is stored or not: the answer may be lost.
func (e *executor) start() {
	for e.lead != nil && e.lead.ctx.Err() == nil && len(e.waiting) > 0 && len(e.inFlight) < calls {
		change := e.waiting[0]
		e.waiting = e.waiting[1:]
		e.inFlight[change.Node] = true
		if change.NoExecute() {
			e.lastTainted[change.Zone] = time.Now()
		}
		lead := e.lead
		go func() { e.done <- result{change, e.write(lead, change)} }()
	}
}

// check begins reads of Leases, as many as may run at once. A replica that does not lead reads them as
// well, so that its decisions are those of a leader.
func (e *executor) check(ctx context.Context) {
	for len(e.doubts) > 0 && len(e.checking) < calls {
		name := e.doubts[0]
		e.doubts = e.doubts[1:]
		e.checking[name] = true
		go func() { e.checked <- result{Change{Node: name}, e.readLease(ctx, name)} }()
	}
}

// readLease reads the Lease of a host, and lets the cache know.
func (e *executor) readLease(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, controlplane.ErrNoAnswer)
	defer cancel()
	object, err := e.store.Get(ctx, store.Leases, name)
	lease, _ := object.(*coordinationv1.Lease)
	switch {
	case err == nil:
		e.cache.Checked(name, lease, nil)
	case errors.Is(err, controlplane.ErrNotFound):
		e.cache.Checked(name, nil, nil)
	case errors.Is(err, controlplane.ErrInvalid):
		e.cache.Checked(name, nil, err)
	default:
		return err
	}
	return nil
}

// write makes one change.
func (e *executor) write(lead *leadership, change Change) error {
	ctx, cancel := context.WithTimeoutCause(lead.ctx, callTimeout, controlplane.ErrNoAnswer)
	defer cancel()
	pre := store.Preconditions{UID: change.UID, Version: change.Version, Term: lead.term}
	_, err := e.store.Update(ctx, store.Nodes, change.Node, pre, func(o store.Object) error {
		node, ok := o.(*corev1.Node)
		if !ok {
			return fmt.Errorf("node %q: %w: the store returned a %T", change.Node, controlplane.ErrInvalid, o)
		}
		change.Apply(node, time.Now())
		return nil
	})
	return err
}

// finish takes in how a write ended.
func (e *executor) finish(r result, now time.Time) {
	name := r.change.Node
	delete(e.inFlight, name)
	before := e.held[name]
	h := hold{version: r.change.Version, until: now.Add(settle)}
	switch {
	case r.err == nil:
		e.writes.Stored++
		for _, step := range r.change.Steps {
			e.log.Info("node changed", "node", name, "change", step.Action, "reason", step.Reason)
		}
	case errors.Is(r.err, controlplane.ErrConflict), errors.Is(r.err, controlplane.ErrNotFound):
		e.writes.Conflict++ // the cache is about to show why
	case e.lead != nil && e.lead.ctx.Err() != nil, errors.Is(r.err, store.ErrDeposed):
		h.until = now
	default:
		e.writes.Failed++
		e.fail(r, now)
		e.changed.Send()
		return
	}
	if before.err != nil && h.err == nil {
		e.log.Info("node can be changed again", "node", name)
	}
	e.held[name] = h
	e.changed.Send()
}

// fail leaves a Node alone for a while after a call that failed, longer each time.
func (e *executor) fail(r result, now time.Time) {
	name := r.change.Node
	before := e.held[name]
	pause := min(max(2*before.pause, firstRetry), lastRetry)
	e.held[name] = hold{version: r.change.Version, until: now.Add(pause), pause: pause, err: r.err}
	if before.err == nil {
		e.log.Warn("cannot read or change node, retrying", "node", name, "error", r.err)
	}
}

// oldestDue is since when the oldest change is due that is not stored yet; zero if there is none.
func (e *executor) oldestDue(d Decision, now time.Time) time.Time {
	due := map[string]time.Time{}
	oldest := time.Time{}
	for _, change := range d.Now {
		since, known := e.due[change.Node]
		if !known {
			since = now
		}
		due[change.Node] = since
		if oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	e.due = due
	return oldest
}

// publish lets others see a decision.
func (e *executor) publish(r Report) {
	r.Writes, r.Unreadable, r.Failing = e.writes, e.cache.Unreadable(), map[string]error{}
	for name, h := range e.held {
		if h.err != nil {
			r.Failing[name] = h.err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Paused != "" {
		r.Decision = e.report.Decision
	}
	e.report = r
}
