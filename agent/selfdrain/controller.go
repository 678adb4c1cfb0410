// Package selfdrain drains a host automatically: because of a NoExecute taint on its Node, or
// because its Lease was not renewed. The drain begins after the configured toleration.
//
// It owns when each cause began, which persists across restarts of the agent, and the decision.
// Package maintenance executes the drain. This package sends nothing to the control plane: others
// report the taints and renewals.
package selfdrain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown/journal"
)

const (
	// recheck is the longest time without a decision while one is due. Timers stop while the host
	// is suspended; the boot-time clock does not.
	recheck = time.Minute
	// refusedPause is the pause after a rejected drain, for example during a shutdown.
	refusedPause = 10 * time.Second
	// incompletePause is the pause after the first drain that left a pod running. The pause doubles
	// with each further one.
	incompletePause = time.Minute
	// maxTries is the maximum number of drains for one cause, if a pod still runs after each.
	maxTries = 6
	// readBound bounds a read of the Node.
	readBound = 10 * time.Second
	// diskBound bounds a write to the disk.
	diskBound = 5 * time.Second
	// endBound is how long Run waits for the end of the drain before it returns.
	endBound = 5 * time.Second
)

// Drainer stops pods, and starts them again: *maintenance.Drainer.
type Drainer interface {
	// DrainForCause stops all pods except critical ones. It returns when they have stopped, or when
	// ctx ends. It calls began with the start of the record before the first stop. If that returns an
	// error, it stops nothing.
	DrainForCause(ctx context.Context, o maintenance.Order, began func(time.Time) error) (journal.Record, error)
	// Undo starts the containers again that the drain with this start time stopped. It returns
	// whether there was such a drain. After an error, it must be called again.
	Undo(ctx context.Context, o maintenance.Order) (bool, error)
}

// Store persists the Memory: a *statefile.File.
type Store interface {
	Load(into any)
	// Unread reports whether Load could not read a Memory that may be intact.
	Unread() bool
	SaveNow(snapshot func() any)
}

// unreadMemory is why no drain begins while the Memory cannot be read: the host may have been drained.
const unreadMemory = "self-drain.state in `state.directory` cannot be read; if that does not end, rename the file: hostler then forgets an earlier drain"

// Jobs says which jobs hostler owns on this host.
type Jobs struct {
	Node  bool
	Lease bool // and no kubelet owns the Node
	Left  bool // a user has deregistered the host
}

// Options are the options of a Controller.
type Options struct {
	Policy  func() Policy
	Jobs    func() Jobs
	Drainer Drainer
	Store   Store
	Flush   func() error                                  // waits until the stored memory is on the disk
	Read    func(context.Context) ([]corev1.Taint, error) // reads the taints of the Node from the control plane; nil if there is no Node
	Boot    string                                        // ID of the current boot
	Of      string                                        // identifies the control plane and the Node
	Now     func() Instant
	Fix     func(Cause) string // returns how a user prevents the drain
	// Unknown returns why the Jobs are not known, so that no drain begins; empty if they are.
	Unknown func() string
	// Announce records an Event.
	Announce func(kind, reason, message string)
	Log      *slog.Logger
}

// Controller drains the host when a drain is due. Its methods are safe for concurrent use.
type Controller struct {
	o    Options
	log  *slog.Logger
	wake loop.Signal
	disk disk

	mu       sync.Mutex // guards the fields below
	memory   Memory
	file     file
	start    time.Duration  // start time of this agent
	seen     bool           // this agent has read the Node
	taints   []corev1.Taint // of the Node, as this agent has read them last
	reports  int            // how often the taints were read or reported
	tried    bool           // this agent has tried a renewal
	waits    bool           // the Lease waits for the Node
	member   bool           // hostler must renew the Lease
	contact  time.Duration  // last renewal, or the time since which renewals are expected
	draining bool
	trouble  string // why the last drain that was due did not begin; empty if it did
}

// disk bounds the waits for the disk.
type disk struct {
	flush *bounded.Serial // waits until the stored memory is on the disk
	load  *bounded.Serial // reads the stored memory
}

// file is the state of the stored memory.
type file struct {
	saved  Memory // last value written to the store
	unread bool   // the memory of an earlier process could not be read yet: nothing is written
}

// New returns a Controller with the memory of an earlier process.
func New(o Options) *Controller {
	at := o.Now().Boot
	e := &Controller{
		o: o, log: o.Log.With("component", "self-drain"), wake: loop.NewSignal(),
		memory: Memory{Boot: o.Boot}, file: file{unread: true}, start: at, contact: at,
	}
	e.disk = disk{bounded.NewSerial(o.Flush), bounded.NewSerial(e.load)}
	_ = e.load() // no error
	return e
}

// load reads the memory of an earlier process, and adds what this process has seen since.
func (e *Controller) load() error {
	var stored Memory
	e.o.Store.Load(&stored)
	unread := e.o.Store.Unread()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.file.unread || unread {
		return nil
	}
	now, since := e.o.Now().Boot, e.memory
	restored := restore(stored, e.o.Boot, e.o.Of, now)
	e.file, e.memory = file{saved: stored}, Memory{Boot: e.o.Boot, Drain: restored.Drain}
	if e.o.Policy().on() { // without a policy, the rest of the memory is outdated
		e.memory = restored
	}
	if e.seen {
		e.memory.see(e.taints, now)
	}
	if since.Lease != nil {
		e.memory.Lease, e.memory.Loss = since.Lease, since.Loss
	}
	e.persist()
	return nil
}

// reread reads the memory again if it could not be read.
func (e *Controller) reread(ctx context.Context) {
	e.mu.Lock()
	unread := e.file.unread
	e.mu.Unlock()
	if unread {
		ctx, cancel := context.WithTimeout(ctx, diskBound)
		defer cancel()
		_ = e.disk.load.Call(ctx) // the store logs the error
	}
}

// unknown returns why no drain may begin; empty if one may. The caller holds mu.
func (e *Controller) unknown() string {
	if e.file.unread {
		return unreadMemory
	}
	return e.o.Unknown()
}

// Taints records the current taints of the Node on the control plane; nil if there is no Node.
func (e *Controller) Taints(taints []corev1.Taint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.take(taints)
}

// take records taints that were read or reported. The caller holds mu.
func (e *Controller) take(taints []corev1.Taint) {
	e.seen, e.taints = true, taints
	e.reports++
	if e.memory.see(taints, e.o.Now().Boot) {
		e.changed()
	}
}

// Renewal records the result of an attempt to renew the Lease, and how long the Lease is valid.
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

// Waits records whether the Lease waits for the Node, which does not exist on the control plane.
func (e *Controller) Waits(waits bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waits != waits {
		e.waits = waits
		e.changed()
	}
}

// Reconfigured makes the Controller apply the new configuration.
func (e *Controller) Reconfigured() { e.wake.Send() }

// follow updates whether hostler must renew the Lease. The caller holds mu.
func (e *Controller) follow(now time.Duration) {
	jobs := e.o.Jobs()
	member := jobs.Lease && !jobs.Left && !e.waits
	if jobs.Left {
		e.memory.leave()
	}
	if !member {
		e.memory.Loss = nil
	}
	if !member || !e.member { // the time without a renewal begins here
		e.contact = now
	}
	e.member = member
}

// changed persists the memory, and wakes Run. The caller holds mu.
func (e *Controller) changed() {
	e.persist()
	e.wake.Send()
}

// persist stores the memory if it has changed. Without a policy it stores only the drain, until it is
// undone. The caller holds mu.
func (e *Controller) persist() {
	if e.file.unread {
		return
	}
	now := Memory{}
	if e.o.Policy().on() {
		now = e.memory
	} else if e.memory.Drain != nil {
		now = Memory{Boot: e.memory.Boot, Drain: e.memory.Drain}
	}
	if !now.equal(e.file.saved) {
		e.file.saved = now
		e.o.Store.SaveNow(func() any { return now })
	}
}

// decide updates the memory, and decides.
func (e *Controller) decide() (d Decision, now time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now = e.o.Now().Boot
	e.follow(now)
	policy := e.o.Policy()
	if l := e.memory.Lease; e.member && l != nil && now >= e.contact+l.Duration { // no renewal is tried, or one hangs
		e.memory.lost(e.contact)
	}
	e.persist()
	f := Facts{Loss: e.memory.Loss}
	if e.o.Jobs().Node {
		f.Taints = e.memory.Taints
	}
	if !e.tried {
		f.LeaseHeldUntil = e.start + hearBound
	}
	d = Decide(f, policy, now)
	if e.unknown() != "" {
		d.hold(now + recheck)
	}
	if l := e.memory.Lease; policy.OnLost && e.member && l != nil && e.memory.Loss == nil {
		if at := e.contact + l.Duration; d.Next == 0 || at < d.Next {
			d.Next = at
		}
	}
	return d, now
}

// Run drains the host when a drain is due, until ctx ends. It returns why it ended.
func (e *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &round{e: e}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		e.reread(ctx)
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

// confirm returns a cause that remains now, or why there is none. A taint may have been removed since it was seen: so
// the Node is read again. The loss of the Lease is a fact of this host.
func (e *Controller) confirm(ctx context.Context) (Cause, error) {
	d, _ := e.decide()
	for _, c := range d.in(Due) {
		if c.Trigger == journal.TriggerLeaseLost {
			return c, nil
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readBound, fmt.Errorf("the control plane did not answer within %v", readBound))
	defer cancel()
	e.mu.Lock()
	before := e.reports
	e.mu.Unlock()
	taints, err := e.o.Read(ctx)
	if err != nil {
		return Cause{}, fmt.Errorf("cannot read whether the taint remains: %w", err)
	}
	e.mu.Lock()
	late := e.reports != before && !equality.Semantic.DeepEqual(taints, e.taints) // what was reported may be newer than the answer
	if !late {
		e.take(taints)
	}
	e.mu.Unlock()
	if late {
		return Cause{}, errors.New("the Node has changed while it was read")
	}
	d, _ = e.decide()
	if due := d.in(Due); len(due) > 0 {
		return due[0], nil
	}
	return Cause{}, errors.New("its cause has ended")
}

// order returns the drain to continue, or a new one.
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

// remember stores the drain, so that the next process continues or undoes it. A drain that cannot be
// stored must not begin.
func (e *Controller) remember(ctx context.Context, o maintenance.Order, at time.Time) error {
	e.mu.Lock()
	known := e.memory.Drain != nil // and stored
	if !known {
		e.memory.Drain = &Drain{o.Trigger, o.Cause, at.UTC().Round(0)}
		e.persist()
	}
	e.mu.Unlock()
	if known {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, diskBound, fmt.Errorf("the disk did not answer within %v", diskBound))
	defer cancel()
	if err := e.disk.flush.Call(ctx); err != nil {
		e.forget()
		return fmt.Errorf("cannot store the start of the drain: %w", err)
	}
	return nil
}

// setTrouble records why a drain that is due does not begin; empty if it has begun.
func (e *Controller) setTrouble(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trouble = why
}

// interrupted returns the stored drain if it does not run; nil if there is none.
func (e *Controller) interrupted() *Drain {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.memory.Drain
}

// forget removes a drain that was undone from the memory.
func (e *Controller) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.memory.Drain = nil
	e.persist()
}

// done records the causes for which the host was drained.
func (e *Controller) done(causes []Cause) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.memory.drained(causes)
	e.persist()
}

// setDraining sets whether a drain runs, for the status.
func (e *Controller) setDraining(now bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.draining = now
}

// Upcoming is a cause in `hostler status -o json`.
type Upcoming struct {
	Trigger  journal.Trigger `json:"trigger"`
	Cause    string          `json:"cause"`
	Since    time.Time       `json:"since"`
	DrainsAt time.Time       `json:"drainsAt"`
	// State is Scheduled, Draining or Drained.
	State State  `json:"state"`
	Hint  string `json:"hint,omitempty"` // how to prevent or end the drain
	// Message says why a drain that is due does not begin; absent if it does.
	Message string `json:"message,omitempty"`
}

// Draining is the State of a cause in Upcoming while its drain runs.
const Draining State = "Draining"

// Upcoming returns why and when the host drains itself, ordered by time.
func (e *Controller) Upcoming() []Upcoming {
	d, now := e.decide()
	e.mu.Lock()
	draining, trouble, unknown, wall := e.draining, e.trouble, e.unknown(), e.o.Now().Wall.Round(0)
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
		case c.State == Due:
			u.State, u.Message = Scheduled, trouble
		case c.State == Held:
			u.State, u.Message = Scheduled, unknown
		}
		list = append(list, u)
	}
	return list
}

// known reports whether a cause is in a list.
func known(list []Cause, c Cause) bool { return slices.ContainsFunc(list, c.same) }
