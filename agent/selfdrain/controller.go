// Package selfdrain drains a host on its own account: for a NoExecute taint of its Node, or because
// its Lease was not renewed, when the configured toleration is over.
//
// It owns since when each cause is there, also across restarts of the agent, and the decision. The
// drain itself is maintenance's. It makes no call to the control plane: others report what they see.
package selfdrain

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown/journal"
)

const (
	// recheck is the longest time without a decision while one is awaited: timers stop while the
	// host is suspended, and the boot-time clock does not.
	recheck = time.Minute
	// refusedPause is the pause after a drain that was refused, such as during a shutdown.
	refusedPause = 10 * time.Second
	// incompletePause is the pause after the first drain that left a pod running; each further one
	// is twice as long.
	incompletePause = time.Minute
	// maxTries is how many drains are tried for one cause if a pod is still running after each.
	maxTries = 6
	// endBound is how long the end of Run waits for the end of the drain.
	endBound = 5 * time.Second
)

// Drainer stops pods, and starts them again: *maintenance.Drainer.
type Drainer interface {
	// DrainForCause stops pods until all but critical ones have stopped, or ctx ends. It calls began
	// before the first stop, with the start of the record.
	DrainForCause(ctx context.Context, o maintenance.Order, began func(time.Time)) (journal.Record, error)
	// Undo starts again what a drain has stopped that began at that time. It returns whether there
	// was one.
	Undo(ctx context.Context, o maintenance.Order) bool
}

// Store keeps the Memory: a *statefile.File.
type Store interface {
	Load(into any)
	SaveNow(snapshot func() any)
}

// Jobs is which jobs are hostler's on this host.
type Jobs struct {
	Node  bool
	Lease bool // and no kubelet has the Node
	Left  bool // a person has deregistered the host
}

// Options is what a Controller needs.
type Options struct {
	Policy  func() Policy
	Jobs    func() Jobs
	Drainer Drainer
	Store   Store
	Boot    string // the present one
	Of      string // names control plane and Node
	Now     func() Instant
	Fix     func(Cause) string // what a person does to prevent the drain
	// Announce makes an Event.
	Announce func(kind, reason, message string)
	Log      *slog.Logger
}

// Controller drains the host when that is due. Its methods are safe for concurrent use.
type Controller struct {
	o    Options
	log  *slog.Logger
	wake loop.Signal

	mu       sync.Mutex // guards what follows
	memory   Memory
	saved    Memory        // as the store has it
	start    time.Duration // of this agent
	seen     bool          // the Node, by this agent
	tried    bool          // a renewal, by this agent
	waits    bool          // the Lease waits for the Node
	member   bool          // the Lease is to be renewed
	contact  time.Duration // the last renewal, or since when renewals are to be expected
	draining bool
}

// New returns a Controller that knows what an earlier process knew.
func New(o Options) *Controller {
	e := &Controller{o: o, log: o.Log.With("component", "self-drain"), wake: loop.NewSignal()}
	var stored Memory
	o.Store.Load(&stored)
	at := o.Now()
	e.start, e.contact, e.saved, e.memory = at.Boot, at.Boot, stored, Memory{Boot: o.Boot}
	if o.Policy().on() { // otherwise nobody kept it up to date
		e.memory = restore(stored, o.Boot, o.Of, at)
	}
	e.persist()
	return e
}

// Taints takes in the taints of the Node as the control plane has them; nil if there is no Node.
func (e *Controller) Taints(taints []corev1.Taint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := !e.seen
	e.seen = true
	if e.memory.see(taints, e.o.Now(), first) || first {
		e.changed()
	}
}

// Renewal takes in the result of an attempt to renew the Lease, and how long the Lease is valid.
func (e *Controller) Renewal(err error, duration time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.o.Now().Boot
	first := !e.tried
	e.tried = true
	e.follow(at)
	changed := false
	switch {
	case err == nil:
		e.contact = at
		changed = e.memory.renewed(e.o.Of, duration)
	case e.member:
		changed = e.memory.lost(e.contact)
	}
	if changed || first {
		e.changed()
	}
}

// Waits takes in whether the Lease waits for the Node, which the control plane does not have.
func (e *Controller) Waits(waits bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waits != waits {
		e.waits = waits
		e.changed()
	}
}

// Reconfigured has the Controller decide by the new configuration.
func (e *Controller) Reconfigured() { e.wake.Send() }

// follow takes in whether the Lease is to be renewed. The caller holds mu.
func (e *Controller) follow(now time.Duration) {
	jobs := e.o.Jobs()
	member := jobs.Lease && !jobs.Left && !e.waits
	if jobs.Left {
		e.memory.leave()
	}
	if !member {
		e.memory.Loss = nil
	}
	if !member || !e.member { // it counts again from here
		e.contact = now
	}
	e.member = member
}

// changed stores what is new, and has Run decide. The caller holds mu.
func (e *Controller) changed() {
	e.persist()
	e.wake.Send()
}

// persist stores the memory if it has changed. Without a policy there is nothing to remember. The
// caller holds mu.
func (e *Controller) persist() {
	now := Memory{}
	if e.o.Policy().on() {
		now = e.memory
	}
	if !now.equal(e.saved) {
		e.saved = now
		e.o.Store.SaveNow(func() any { return now })
	}
}

// decide brings what is known up to date, and decides.
func (e *Controller) decide() (d Decision, now time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now = e.o.Now().Boot
	e.follow(now)
	policy := e.o.Policy()
	if l := e.memory.Lease; e.member && l != nil && now >= e.contact+l.Duration { // nobody tries to renew it, or that hangs
		e.memory.lost(e.contact)
	}
	e.persist()
	f := Facts{Loss: e.memory.Loss}
	if e.o.Jobs().Node {
		f.Taints = e.memory.Taints
	}
	if !e.seen {
		f.NodeHeldUntil = e.start + hearBound
	}
	if !e.tried {
		f.LeaseHeldUntil = e.start + hearBound
	}
	d = Decide(f, policy, now)
	if l := e.memory.Lease; policy.OnLost && e.member && l != nil && e.memory.Loss == nil {
		if at := e.contact + l.Duration; d.Next == 0 || at < d.Next {
			d.Next = at
		}
	}
	return d, now
}

// Run drains the host when that is due, until ctx ends, and returns why.
func (e *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &round{e: e}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		d, now := e.decide()
		r.announce(d, now)
		next := r.act(ctx, d, now)
		if next > 0 {
			timer.Reset(min(next, recheck))
		} else {
			timer.Stop()
		}
		select {
		case <-e.wake:
		case <-timer.C:
		case o := <-r.over():
			d, now := e.decide()
			r.conclude(ctx, o, d, now)
		case <-ctx.Done():
			r.end()
			return context.Cause(ctx)
		}
	}
}

// order is the drain that is to be continued; a new one if there is none.
func (e *Controller) order(first Cause) maintenance.Order {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.memory.Drain; d != nil {
		return d.order()
	}
	return maintenance.Order{Trigger: first.Trigger, Cause: first.String()}
}

func (d *Drain) order() maintenance.Order {
	return maintenance.Order{Trigger: d.Trigger, Cause: d.Cause, Began: d.StartedAt}
}

// remember remembers the drain, so that the next process continues or undoes it.
func (e *Controller) remember(o maintenance.Order, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.memory.Drain == nil {
		e.memory.Drain = &Drain{o.Trigger, o.Cause, at.UTC().Round(0)}
		e.persist()
	}
}

// interrupted is the drain that is remembered and does not run; nil if there is none.
func (e *Controller) interrupted() *Drain {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.memory.Drain
}

// forget ends the memory of a drain that was undone.
func (e *Controller) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.memory.Drain = nil
	e.persist()
}

// done remembers what the host was drained for.
func (e *Controller) done(causes []Cause) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.memory.drained(causes)
	e.persist()
}

// setDraining is for the status.
func (e *Controller) setDraining(now bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.draining = now
}

// Upcoming is a cause as `hostler status -o json` has it.
type Upcoming struct {
	Trigger  journal.Trigger `json:"trigger"`
	Cause    string          `json:"cause"`
	Since    time.Time       `json:"since"`
	DrainsAt time.Time       `json:"drainsAt"`
	// State is Scheduled, Draining or Drained.
	State State  `json:"state"`
	Hint  string `json:"hint,omitempty"` // how to prevent or end the drain
}

// Draining is the state of a cause in Upcoming whose drain runs.
const Draining State = "Draining"

// Upcoming returns why and when the host drains itself, the first drain first.
func (e *Controller) Upcoming() []Upcoming {
	d, now := e.decide()
	e.mu.Lock()
	draining, wall := e.draining, e.o.Now().Wall.Round(0)
	e.mu.Unlock()
	list := make([]Upcoming, 0, len(d.Causes))
	for _, c := range d.Causes {
		u := Upcoming{
			Trigger: c.Trigger, Cause: c.String(), State: c.State, Hint: e.o.Fix(c),
			Since: wall.Add(c.Since - now).Round(time.Second), DrainsAt: wall.Add(c.Due - now).Round(time.Second),
		}
		switch {
		case c.State == Due && draining:
			u.State = Draining
		case c.State == Due, c.State == Held:
			u.State = Scheduled
		}
		list = append(list, u)
	}
	return list
}

// known reports whether a cause is in a list.
func known(list []Cause, c Cause) bool { return slices.ContainsFunc(list, c.same) }
