package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// WriteTimeout bounds one write to the control plane.
const WriteTimeout = 10 * time.Second

// Options say what is reported, and to whom.
type Options struct {
	Client   controlplane.Client
	Recorder *controlplane.Recorder
	Facts    Facts
	Node     func() status.Options // those in force, as configured
	Update   time.Duration         // from one look to the next
	Rewrite  time.Duration         // from one write to the next where nothing changed
	Takeover bool
	// AdoptOnly never creates the Node, but waits until somebody else has.
	AdoptOnly bool
	Watch     *controlplane.LeaseWatch    // tells whether another machine is dead that has the name
	Clones    func() []controlplane.Clone // are the hosts that take themselves for this one; none if nil
	Mine      func() bool                 // whether the Node is hostler's to write
	Beside    func() bool                 // whether it is a kubelet's on this host; never if nil
	Boot      string                      // the present one
	Store     Store                       // keeps a last word that was not delivered
	Notes     Store                       // keeps a person's cordon and departure, also where the Store is lost
	Named     func(types.UID)             // is told the UID that the control plane gave the Node
	// Asked is told what the stored Node asks for of its Lease, with each that is read; it
	// may be nil.
	Asked func(leaseDuration string)
	// Waits is told why the Node is waited for, as is its Lease then; nothing once
	// it is there. It may be nil.
	Waits   func(why string)
	Flush   func() error     // writes to the disk what the Store and the Notes were given; may be nil
	Now     func() time.Time // the wall clock; time.Now if nil
	Log     *slog.Logger
	Observe func(err error)            // after each write
	Count   func(corev1.NodeCondition) // after each transition, with what the condition is now
}

// Facts are what a Node is made from: a *host.Facts.
type Facts interface {
	// Now looks at the host. The shutdown guard's status is taken from guarded if
	// that is not nil: it is then newer than what the guard says itself.
	Now(ctx context.Context, guarded *shutdown.Status) status.Facts
	// Machine is the hardware and its kernel.
	Machine() probe.Machine
}

// Store keeps values by key: a *state.Bucket, or *state.Notes, whose values are JSON.
type Store interface {
	Load() (map[string][]byte, error)
	Write(put map[string][]byte, remove []string) error
}

// Reporter keeps the Node up to date on the control plane: it looks at the host,
// registers the Node, writes its status on change and every now and then, and
// makes an Event of each condition's transition. It is safe for concurrent use.
type Reporter struct {
	o          Options
	cordons    *cordons
	departures *word[Departure]
	foreign    *foreign

	poke chan struct{} // holds one token when something changed

	turn  chan struct{} // holds one token; who takes it may look and write, and owns what follows
	begun bool          // the first look was taken
	// remembered is whether it is known what was reported before this start;
	// forgotten is why not.
	remembered bool
	forgotten  error
	short      bool // the host does not have what is reserved of it
	enrolment
	added      added
	written    *corev1.NodeStatus
	writtenAt  time.Time
	kept       bool               // the store holds a last word
	lastWord   *corev1.NodeStatus // of an earlier boot, to be delivered first
	respite    respite            // that the control plane asked for
	memory     status.Memory
	conditions []corev1.NodeCondition // of the last look
	cloned     []string               // what clones called themselves in the last round

	hint atomic.Bool // somebody else has changed the stored Node

	mu        sync.Mutex             // guards what follows
	node      *corev1.Node           // as last seen from the host, with the control plane's metadata
	known     *corev1.Node           // as last stored, no status; nil if it is not registered
	wanted    *corev1.Node           // as last seen from the host, without what changes there by itself
	said      []corev1.NodeCondition // as last written; none if the Node is not registered
	standing  Standing
	lacking   []Drift // configured taints
	left      []Drift // by a machine that had the Node before
	lastFacts status.Facts
	connected bool
	lastError error
	interrupt context.CancelCauseFunc // ends the round under way; nil if none can be ended
	urgent    int                     // shutdowns' reports that wait for the turn
}

// New returns a reporter that has told nothing yet, but knows what a person
// decided before.
func New(o Options) *Reporter {
	cordons := newCordons(o.Notes, o.Log)
	o.Log = o.Log.With("component", "status")
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Beside == nil {
		o.Beside = func() bool { return false }
	}
	r := &Reporter{o: o, cordons: cordons, departures: newDepartures(o.Notes, o.Log), foreign: newForeign(o.Store, o.Log), poke: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	o.Recorder.SilentWhile(func() bool { return r.Left() != nil }) // of a Node that is to be gone the fleet hears no more
	if d := r.Left(); d != nil {
		r.standing.Waits = d.String()
	}
	return r
}

// options are those in force, for a Node that is open or closed as a person
// decided, else as configured.
func (r *Reporter) options() status.Options {
	o := r.o.Node()
	o.Unschedulable = r.cordons.wanted(o.Unschedulable)
	return o
}

// remember takes up what an earlier run of the agent reported in this boot, so
// that conditions keep their times and Ready does not flip. What a control plane
// does not tell in time is asked for again in the next round, as long as nothing
// was written, and then waited for longer: the host has been looked at by then.
func (r *Reporter) remember(ctx context.Context, beside bool) {
	limit := time.Second
	if r.forgotten != nil {
		limit = WriteTimeout / 2
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	node, err := r.o.Client.Node(ctx, r.options().Name)
	if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
		r.forgotten = err
		return
	}
	r.remembered = true
	if err != nil || node.Status.NodeInfo.BootID != r.o.Facts.Machine().BootID {
		return // nothing known of this boot
	}
	conditions := node.Status.Conditions
	if beside { // the others are the kubelet's word
		conditions = status.OwnConditions(conditions)
	}
	r.memory, r.conditions = status.Remember(conditions), conditions
}

// Changed asks for a look at the host now.
func (r *Reporter) Changed() {
	select {
	case r.poke <- struct{}{}:
	default: // one is asked for already
	}
}

// Run looks and writes until ctx ends. beat is told how each round ended.
func (r *Reporter) Run(ctx context.Context, beat func(error)) error {
	tick := time.NewTicker(r.o.Update)
	defer tick.Stop()
	failing := false
	for {
		err := r.once(ctx, nil)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errOvertaken) {
			err = nil // the one that did so tells how it went
		}
		beat(err)
		switch {
		case err != nil && !failing:
			r.o.Log.Warn("the node's status cannot be written, will try again", "error", err)
		case err == nil && failing:
			r.o.Log.Info("the node's status is written again")
		}
		switch {
		case err != nil: // a fleet must not come back all at once
			tick.Reset(r.o.Update/2 + rand.N(r.o.Update/2))
		case failing:
			tick.Reset(r.o.Update)
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-r.poke:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ReportShutdown writes what the shutdown guard says of itself at once, from the
// facts at hand, and returns when it is stored. A round under way, and those that
// wait before it, are given up for it. What the control plane does not take is
// kept for the next boot. It implements shutdown.Reporter.
func (r *Reporter) ReportShutdown(ctx context.Context, s shutdown.Status) error {
	return r.once(ctx, &s)
}

// errOvertaken ends a round that a shutdown's report does not wait for.
var errOvertaken = errors.New("a shutdown is reported first")

// take waits for the turn, which the caller puts back.
func (r *Reporter) take(ctx context.Context, urgent bool) error {
	if urgent {
		r.hurry(1)
		defer r.hurry(-1)
	}
	select {
	case <-r.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the report under way: %w", ctx.Err())
	}
}

// hurry counts who may not wait, and ends the round under way for them.
func (r *Reporter) hurry(more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.urgent += more
	if r.urgent > 0 && r.interrupt != nil {
		r.interrupt(errOvertaken)
	}
}

// round is the context of what has the turn and gives way to a shutdown's report.
func (r *Reporter) round(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	r.interrupt = cancel
	if r.urgent > 0 { // it queued behind this one
		cancel(errOvertaken)
	}
	r.mu.Unlock()
	return ctx, func() {
		cancel(nil)
		r.mu.Lock()
		r.interrupt = nil
		r.mu.Unlock()
	}
}

// once looks at the host and writes what is worth a write.
func (r *Reporter) once(ctx context.Context, guarded *shutdown.Status) (err error) {
	if err := r.take(ctx, guarded != nil); err != nil {
		return fmt.Errorf("report the node's status: %w", err)
	}
	defer func() { r.turn <- struct{}{} }()
	if guarded == nil {
		round, end := r.round(ctx)
		ctx = round
		defer end()
		defer func() {
			if errors.Is(context.Cause(round), errOvertaken) {
				err = errOvertaken
			}
		}()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("report the node's status: %w", err)
		}
	}
	if !r.begun {
		r.recall()
	}
	r.begun = true
	mine, beside := r.o.Mine() && r.Left() == nil, r.besideKubelet()
	if (mine || beside) && !r.remembered {
		r.remember(ctx, beside)
	}

	options := r.options()
	facts := r.o.Facts.Now(ctx, guarded)
	if err := ctx.Err(); err != nil { // what was not measured for that says nothing of the host
		return fmt.Errorf("report the node's status: %w", err)
	}
	node, memory := status.Node(facts, options, r.memory, r.o.Now())
	transitions := status.Transitions(r.conditions, node.Status.Conditions)
	r.memory, r.conditions = memory, node.Status.Conditions
	if beside { // whose Node says the rest
		transitions = slices.DeleteFunc(transitions, func(t status.Transition) bool { return !status.IsOwn(t.New.Type) })
	}
	r.tell(options.Name, transitions)
	r.noteReserved(facts, options)
	r.tellClones(options.Name)
	r.see(node, facts, options)
	if !mine {
		r.leaveToOwner()
	}
	if !beside {
		r.added = added{}
	}
	if mine && facts.Draining.Active {
		r.keep(node.Status)
	}
	if guarded != nil {
		r.secure(ctx)
	} else if time.Now().Before(r.respite.until) {
		return r.respite.err
	}
	write := r.write
	switch {
	case beside:
		write = r.add
	case !mine:
		return nil
	}
	writing, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	wrote, err := write(writing, node)
	if (wrote || err != nil) && !errors.Is(context.Cause(ctx), errOvertaken) {
		r.o.Observe(err)
		r.contact(err)
		r.respite = r.respiteAfter(err)
	}
	if err == nil && mine && r.standing.Waits == "" {
		r.forget()
	}
	return err
}

// respite is until when a control plane is left alone that asked for it, which a
// shutdown's report does not wait for.
type respite struct {
	until time.Time
	err   error
}

// respiteAfter is what it asks for with err, no longer than from one regular report to
// the next.
func (r *Reporter) respiteAfter(err error) respite {
	busy, asks := errors.AsType[*controlplane.BusyError](err)
	if !asks {
		return respite{}
	}
	return respite{until: time.Now().Add(wait.Jitter(min(busy.After, r.o.Rewrite), controlplane.Retry().Jitter)), err: err}
}

// contact notes how the control plane answered.
func (r *Reporter) contact(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connected, r.lastError = err == nil, err
}

// Current returns the Node as last seen, nil before the first look.
func (r *Reporter) Current() (node *corev1.Node, facts status.Facts, connected bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node.DeepCopy(), r.lastFacts, r.connected, r.lastError
}

// tell makes an Event, a count and a log line of each transition. The shutdown guard logs
// its own, and that the agent starts is no news. Not so its pods' being out of reach, of
// which the guard does not hear.
func (r *Reporter) tell(node string, transitions []status.Transition) {
	for _, t := range transitions {
		if t.New.Reason == status.ReasonStarting {
			continue // true of every start, and over in a moment
		}
		r.o.Count(t.New)
		r.o.Recorder.Record(controlplane.NodeReference(node), t.EventType(), t.EventReason(), t.Message())
		switch {
		case t.New.Type == status.ShutdownProtected && t.New.Reason != status.ReasonPodsOutOfReach && (t.Old == nil || t.Old.Reason != status.ReasonPodsOutOfReach):
		case !t.Good():
			r.o.Log.Warn("condition", "type", t.New.Type, "status", t.New.Status, "reason", t.New.Reason, "message", t.New.Message)
		case t.Old != nil: // that all is well at the start goes without saying
			r.o.Log.Info("condition", "type", t.New.Type, "status", t.New.Status, "reason", t.New.Reason, "message", t.New.Message)
		}
	}
}
