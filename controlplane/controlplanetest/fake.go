// Package controlplanetest is what control planes, and whatever talks to one, are
// tested with: Run has a client pass the suite of package conformance as tests, and
// Fake is a fleet's control plane in memory that fails on demand.
package controlplanetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/faulttest"
)

// FakeMaxEvents is how many Events a Fake keeps.
const FakeMaxEvents = 2000

// Fake is a control plane in memory, for any number of Nodes and agents. It
// works under testing/synctest. Use NewFake.
type Fake struct {
	now    func() time.Time
	faults faulttest.Book[Method, Fault]

	mu      sync.Mutex
	version int
	nodes   map[string]*history[*corev1.Node]
	leases  map[string]*history[*coordinationv1.Lease]
	renewed map[string]time.Time // when each Lease was stored last, by the monotonic clock
	events  []*corev1.Event
	own     map[string]map[corev1.NodeConditionType]bool // conditions that UpdateStatus has written, by Node
	changed chan struct{}                                // closed and replaced with each change of a Node or fault

	keepsNodes   bool
	expireLeases bool
	pace         string // that all Leases are asked to be good for
}

// history is an object with the one that it replaced.
type history[T any] struct{ latest, before T }

var (
	_ controlplane.Client      = (*Fake)(nil)
	_ controlplane.NodeLister  = (*Fake)(nil)
	_ controlplane.EventLister = (*Fake)(nil)
	_ controlplane.Cordoner    = (*Fake)(nil)

	_ controlplane.NodeWatcher     = (*Fake)(nil)
	_ controlplane.ConditionWriter = (*Fake)(nil)
	_ controlplane.MachineFinder   = (*Fake)(nil)
	_ controlplane.FleetLister     = (*Fake)(nil)
	_ controlplane.Pacer           = (*Fake)(nil)
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

		renewed: map[string]time.Time{},

		own:     map[string]map[corev1.NodeConditionType]bool{},
		changed: make(chan struct{}),
	}
}

// Create stores a Node as someone else would, a person or a kubelet, in place of
// one that is there.
func (f *Fake) Create(node *corev1.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.nodes, node.Name)
	delete(f.own, node.Name)
	next := node.DeepCopy()
	next.UID, next.ResourceVersion = "", ""
	f.putNode(next)
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
		next, err = f.claim(stored.latest, node, opts)
	case opts.AdoptOnly:
		err = controlplane.ErrNotFound
	default:
		next, err = controlplane.NewNode(node)
		delete(f.own, node.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("register node %q: %w", node.Name, err)
	}
	return answer(fault, f.putNode(next))
}

// claim is what becomes of a stored Node that is registered.
func (f *Fake) claim(stored, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	var lease *coordinationv1.Lease
	if h, ok := f.lease(node.Name); ok {
		lease = h.latest
	}
	others, err := controlplane.Claim(stored, node, lease, opts)
	if err != nil {
		return nil, err
	}
	if !others {
		return controlplane.Adopt(stored, node)
	}
	opts.Replaced(stored.DeepCopy())
	delete(f.own, node.Name)
	if opts.AdoptOnly || f.keepsNodes || controlplane.Reports(stored, node) {
		return controlplane.TakeOver(stored, node)
	}
	delete(f.nodes, node.Name)
	return controlplane.Replace(stored, node)
}

// KeepNodes has Register delete no Nodes from now on, but take them over, as where a
// node has no more rights than a cluster gives it.
func (f *Fake) KeepNodes() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepsNodes = true
}

// ExpireLeases has each Lease go from now on that is not renewed for as long as it is
// good for, by the Fake's own monotonic clock.
func (f *Fake) ExpireLeases() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expireLeases = true
}

// lease is the Lease of that name, if there is one. The caller holds mu.
func (f *Fake) lease(name string) (*history[*coordinationv1.Lease], bool) {
	h, ok := f.leases[name]
	if ok && f.expireLeases && time.Since(f.renewed[name]) >= time.Duration(*h.latest.Spec.LeaseDurationSeconds)*time.Second {
		delete(f.leases, name)
		return nil, false
	}
	return h, ok
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
	f.wakeWatchers()
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
	if len(next.Status.Addresses) == 0 {
		next.Status.Addresses = stored.latest.Status.Addresses
	}
	own := map[corev1.NodeConditionType]bool{}
	for _, c := range next.Status.Conditions {
		own[c.Type] = true
	}
	for _, c := range stored.latest.Status.Conditions {
		if !own[c.Type] && !f.own[node.Name][c.Type] && !strings.HasPrefix(string(c.Type), "hostler.io/") { // somebody else's
			next.Status.Conditions = append(next.Status.Conditions, c)
		}
	}
	f.own[node.Name] = own
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
	stored, ok := f.lease(name)
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
	if stored, ok := f.lease(lease.Name); ok {
		if stored.latest.ResourceVersion != lease.ResourceVersion || fault.Conflict {
			return nil, fmt.Errorf("renew lease %q: %w", lease.Name, controlplane.ErrConflict)
		}
		next.UID, next.CreationTimestamp = stored.latest.UID, stored.latest.CreationTimestamp
		h.before = stored.latest
	}
	f.stamp(&next.ObjectMeta)
	f.leases[lease.Name] = h
	f.renewed[lease.Name] = time.Now()
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
func (f *Fake) Leave(ctx context.Context, name string, machine controlplane.Identity) error {
	fault, err := f.call(ctx, Leave, name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if stored, ok := f.nodes[name]; ok {
		if err := controlplane.CheckLeave(stored.latest, machine); err != nil {
			return fmt.Errorf("leave: %w", err)
		}
	}
	delete(f.nodes, name)
	delete(f.own, name)
	if fault.LeaseStays {
		f.wakeWatchers()
		return fmt.Errorf("leave: lease %q: %w: %w", name, controlplane.ErrLeaseStays, controlplane.ErrUnavailable)
	}
	delete(f.leases, name)
	f.wakeWatchers()
	if fault.LoseAnswer {
		return fmt.Errorf("leave %q: answer lost: %w", name, controlplane.ErrUnavailable)
	}
	return nil
}

// RemoveEvents deletes the Events about that Node. It implements
// conformance.EventRemover. No fault befalls it.
func (f *Fake) RemoveEvents(_ context.Context, nodeName string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = slices.DeleteFunc(f.events, func(e *corev1.Event) bool { return e.InvolvedObject.Name == nodeName })
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
