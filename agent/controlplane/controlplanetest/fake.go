// Package controlplanetest is what every control plane is tested with: a
// conformance suite that each Client passes, and Fake, a fleet's control plane in
// memory that fails on demand, for tests of everything that talks to one.
//
// The suite checks what the Client interface promises and nothing that only one
// control plane does. It is harmless to Nodes other than those it registers.
package controlplanetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/agent/controlplane"
)

// Method names a method of controlplane.Client.
type Method string

// The methods that a Fault can befall.
const (
	Any          Method = ""
	Register     Method = "Register"
	Node         Method = "Node"
	UpdateStatus Method = "UpdateStatus"
	Lease        Method = "Lease"
	RenewLease   Method = "RenewLease"
	PublishEvent Method = "PublishEvent"
	Leave        Method = "Leave"
)

// FakeMaxEvents is how many Events a Fake keeps.
const FakeMaxEvents = 2000

// fakeTimeout bounds a call whose context has no deadline.
const fakeTimeout = 30 * time.Second

// Fault is what goes wrong with a call. Its parts add up.
type Fault struct {
	Delay      time.Duration // passes before the call is served
	Hang       bool          // nothing comes back until the context ends
	Err        error         // comes back instead of being served
	LoseAnswer bool          // it is served, and ErrUnavailable comes back
	Stale      bool          // what comes back is the object before its last change
	Conflict   bool          // a RenewLease is refused although nothing has changed
	Times      int           // how many calls it befalls; 0 means all until Heal
}

// Fake is a control plane in memory, for any number of Nodes and agents. It
// works under testing/synctest. Use NewFake.
type Fake struct {
	now func() time.Time

	mu      sync.Mutex
	version int
	nodes   map[string]*history[*corev1.Node]
	leases  map[string]*history[*coordinationv1.Lease]
	events  []*corev1.Event
	faults  map[Method]*Fault
	calls   map[Method]int
}

// history is an object with the one that it replaced.
type history[T any] struct{ latest, before T }

var (
	_ controlplane.Client      = (*Fake)(nil)
	_ controlplane.NodeLister  = (*Fake)(nil)
	_ controlplane.EventLister = (*Fake)(nil)
	_ controlplane.Cordoner    = (*Fake)(nil)
)

// NewFake returns an empty control plane without faults, whose wall clock is
// now, or time.Now if that is nil.
func NewFake(now func() time.Time) *Fake {
	if now == nil {
		now = time.Now
	}
	return &Fake{
		now:    now,
		nodes:  map[string]*history[*corev1.Node]{},
		leases: map[string]*history[*coordinationv1.Lease]{},
		faults: map[Method]*Fault{},
		calls:  map[Method]int{},
	}
}

// Inject makes a fault befall calls of that method from now on, in place of an
// earlier one; Any means those without one of their own.
func (f *Fake) Inject(m Method, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[m] = &fault
}

// Heal ends all faults. Calls that hang go on hanging, as on a dead connection.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.faults)
}

// Calls counts the calls of that method so far, or of all for Any, whatever
// became of them.
func (f *Fake) Calls(m Method) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m != Any {
		return f.calls[m]
	}
	sum := 0
	for n := range maps.Values(f.calls) {
		sum += n
	}
	return sum
}

// Edit changes a stored Node as someone else would.
func (f *Fake) Edit(_ context.Context, name string, change func(*corev1.Node)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	stored, ok := f.nodes[name]
	if !ok {
		return controlplane.ErrNotFound
	}
	node := stored.latest.DeepCopy()
	change(node)
	f.putNode(node)
	return nil
}

// call counts a call, checks the name and suffers the fault. It returns what of
// the fault is left for the caller to do.
func (f *Fake) call(ctx context.Context, m Method, name string) (Fault, error) {
	fault := f.begin(m)
	wrap := func(err error) error { return fmt.Errorf("%s %q: %w", m, name, err) }
	if ctx.Err() != nil {
		return fault, wrap(context.Cause(ctx))
	}
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return fault, wrap(fmt.Errorf("%w: %s", controlplane.ErrInvalid, faults[0]))
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, fakeTimeout)
		defer cancel()
	}
	if fault.Hang {
		<-ctx.Done()
		return fault, wrap(context.Cause(ctx))
	}
	if fault.Delay > 0 {
		select {
		case <-time.After(fault.Delay):
		case <-ctx.Done():
			return fault, wrap(context.Cause(ctx))
		}
	}
	if fault.Err != nil {
		return fault, wrap(fault.Err)
	}
	return fault, nil
}

func (f *Fake) begin(m Method) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[m]++
	fault, key := f.faults[m], m
	if fault == nil {
		fault, key = f.faults[Any], Any
	}
	if fault == nil {
		return Fault{}
	}
	befalls := *fault
	if fault.Times > 0 {
		if fault.Times--; fault.Times == 0 {
			delete(f.faults, key)
		}
	}
	return befalls
}

// answer is what the caller gets of a stored object.
func answer[T interface{ DeepCopy() T }](fault Fault, h *history[T]) (T, error) {
	var none T
	switch {
	case fault.LoseAnswer:
		return none, fmt.Errorf("answer lost: %w", controlplane.ErrUnavailable)
	case fault.Stale:
		return h.before.DeepCopy(), nil
	}
	return h.latest.DeepCopy(), nil
}

// Type returns "fake".
func (f *Fake) Type() string { return "fake" }

// Endpoint returns "memory".
func (f *Fake) Endpoint() string { return "memory" }

// Close does nothing.
func (f *Fake) Close() error { return nil }

// Register implements controlplane.Client.
func (f *Fake) Register(ctx context.Context, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	fault, err := f.call(ctx, Register, node.Name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	stored, ok := f.nodes[node.Name]
	var next *corev1.Node
	switch {
	case ok:
		var lease *coordinationv1.Lease
		if h, ok := f.leases[node.Name]; ok {
			lease = h.latest
		}
		next, err = controlplane.Adopt(stored.latest, node, lease, opts.Takeover, f.now())
	case opts.AdoptOnly:
		err = controlplane.ErrNotFound
	default:
		next, err = controlplane.NewNode(node)
	}
	if err != nil {
		return nil, fmt.Errorf("register node %q: %w", node.Name, err)
	}
	return answer(fault, f.putNode(next))
}

// putNode stores a Node, if anything has changed, under the next version.
func (f *Fake) putNode(node *corev1.Node) *history[*corev1.Node] {
	h := &history[*corev1.Node]{latest: node, before: node}
	if stored, ok := f.nodes[node.Name]; ok {
		if equality.Semantic.DeepEqual(stored.latest, node) {
			return stored
		}
		h.before = stored.latest
	}
	f.stamp(&node.ObjectMeta)
	f.nodes[node.Name] = h
	return h
}

// stamp gives an object the next version, and a UID if it is new.
func (f *Fake) stamp(meta *metav1.ObjectMeta) {
	f.version++
	meta.ResourceVersion = strconv.Itoa(f.version)
	if meta.UID == "" {
		meta.UID = types.UID(fmt.Sprintf("fake-%d", f.version))
		meta.CreationTimestamp = metav1.NewTime(f.now().Truncate(time.Second))
	}
}

// Node implements controlplane.Client.
func (f *Fake) Node(ctx context.Context, name string) (*corev1.Node, error) {
	fault, err := f.call(ctx, Node, name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	stored, ok := f.nodes[name]
	if !ok {
		return nil, fmt.Errorf("get node %q: %w", name, controlplane.ErrNotFound)
	}
	return answer(fault, stored)
}

// UpdateStatus implements controlplane.Client.
func (f *Fake) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	fault, err := f.call(ctx, UpdateStatus, node.Name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	stored, ok := f.nodes[node.Name]
	if !ok || node.UID != "" && node.UID != stored.latest.UID {
		return nil, fmt.Errorf("update status of node %q: %w", node.Name, controlplane.ErrNotFound)
	}
	if err := controlplane.CheckOwner(stored.latest, node); err != nil {
		return nil, err
	}
	next := stored.latest.DeepCopy()
	node.Status.DeepCopyInto(&next.Status)
	return answer(fault, f.putNode(next))
}

// Cordon implements controlplane.Cordoner.
func (f *Fake) Cordon(ctx context.Context, name string, unschedulable bool) (*corev1.Node, error) {
	err := f.Edit(ctx, name, func(node *corev1.Node) { node.Spec.Unschedulable = unschedulable })
	if err != nil {
		return nil, fmt.Errorf("cordon node %q: %w", name, err)
	}
	return f.Node(ctx, name)
}

// Lease implements controlplane.Client.
func (f *Fake) Lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	fault, err := f.call(ctx, Lease, name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	stored, ok := f.leases[name]
	if !ok {
		return nil, fmt.Errorf("get lease %q: %w", name, controlplane.ErrNotFound)
	}
	return answer(fault, stored)
}

// RenewLease implements controlplane.Client.
func (f *Fake) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	fault, err := f.call(ctx, RenewLease, lease.Name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := lease.DeepCopy()
	next.UID = ""
	h := &history[*coordinationv1.Lease]{latest: next, before: next}
	if stored, ok := f.leases[lease.Name]; ok {
		if stored.latest.ResourceVersion != lease.ResourceVersion || fault.Conflict {
			return nil, fmt.Errorf("renew lease %q: %w", lease.Name, controlplane.ErrConflict)
		}
		next.UID, next.CreationTimestamp = stored.latest.UID, stored.latest.CreationTimestamp
		h.before = stored.latest
	}
	f.stamp(&next.ObjectMeta)
	f.leases[lease.Name] = h
	return answer(fault, h)
}

// PublishEvent implements controlplane.Client.
func (f *Fake) PublishEvent(ctx context.Context, event *corev1.Event) error {
	fault, err := f.call(ctx, PublishEvent, event.Name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := event.DeepCopy()
	f.stamp(&next.ObjectMeta)
	f.events = slices.DeleteFunc(f.events, func(e *corev1.Event) bool {
		return e.Name == next.Name && e.Namespace == next.Namespace
	})
	f.events = append(f.events, next)
	f.events = f.events[max(0, len(f.events)-FakeMaxEvents):]
	if fault.LoseAnswer {
		return fmt.Errorf("publish event %q: answer lost: %w", event.Name, controlplane.ErrUnavailable)
	}
	return nil
}

// Leave implements controlplane.Client.
func (f *Fake) Leave(ctx context.Context, name string) error {
	if _, err := f.call(ctx, Leave, name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.nodes, name)
	delete(f.leases, name)
	return nil
}

// Nodes implements controlplane.NodeLister. No fault befalls it.
func (f *Fake) Nodes(ctx context.Context) ([]corev1.Node, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var nodes []corev1.Node
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		nodes = append(nodes, *f.nodes[name].latest.DeepCopy())
	}
	return nodes, nil
}

// Events implements controlplane.EventLister. No fault befalls it.
func (f *Fake) Events(ctx context.Context) ([]corev1.Event, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var events []corev1.Event
	for _, e := range f.events {
		events = append(events, *e.DeepCopy())
	}
	return events, nil
}
