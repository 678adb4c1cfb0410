// Package controlplanetest tests control planes and their users: Run runs the suite of package
// conformance as tests, and Fake is a fleet's control plane in memory that fails on demand.
package controlplanetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/controlplane/faulttest"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/memory"
	"hostler.io/hostler/controlplane/objects/objectstest"
)

// FakeMaxEvents is how many Events a Fake keeps.
const FakeMaxEvents = 2000

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

	WatchNode        Method = "WatchNode"
	UpdateConditions Method = "UpdateConditions"
	Annotate         Method = "Annotate"
	Fleet            Method = "Fleet"
	WatchPace        Method = "WatchPace"
)

// Fault is what goes wrong with a call. Only a Lease or RenewLease can be Stale, only a
// RenewLease be refused for a Conflict, and only in a Leave LeaseStays.
type Fault = faulttest.Fault

// Fake is a control plane in memory, for any number of Nodes and agents, which may no more
// than Kubernetes lets a node. It works under testing/synctest. Use NewFake.
type Fake struct {
	*faulttest.Book[Method]

	// No fault befalls these.
	controlplane.NodeLister
	controlplane.EventLister
	conformance.Editor
	conformance.EventRemover

	store *objectstest.Store
	now   func() time.Time

	mu         sync.Mutex // guards what follows
	client     *objects.Client
	created    int                                 // Nodes by Create
	renewed    map[string][2]*coordinationv1.Lease // Leases as they were renewed last, and before
	keepsNodes bool
}

var (
	_ controlplane.Client      = (*Fake)(nil)
	_ controlplane.NodeLister  = (*Fake)(nil)
	_ controlplane.EventLister = (*Fake)(nil)
	_ controlplane.Cordoner    = (*Fake)(nil)
	_ controlplane.Annotator   = (*Fake)(nil)

	_ controlplane.NodeWatcher     = (*Fake)(nil)
	_ controlplane.ConditionWriter = (*Fake)(nil)
	_ controlplane.FleetLister     = (*Fake)(nil)
	_ controlplane.Pacer           = (*Fake)(nil)
)

// NewFake returns an empty control plane without faults, whose wall clock is
// now, or time.Now if that is nil.
func NewFake(now func() time.Time) *Fake {
	if now == nil {
		now = time.Now
	}
	f := &Fake{
		Book: faulttest.NewBook[Method](),
		store: &objectstest.Store{
			Store: memory.New(memory.Options{Type: "fake", Endpoint: "memory", MaxEvents: FakeMaxEvents}),
			Book:  faulttest.NewBook[objectstest.Call](),
		},
		now:     now,
		renewed: map[string][2]*coordinationv1.Lease{},
	}
	f.Forget()
	f.NodeLister, f.EventLister, f.Editor, f.EventRemover = f.client, f.client, f.client, f.client
	return f
}

// Forget has it take the conditions that it was told so far for another client's, except
// those in hostler's domain, as a client does that starts again.
func (f *Fake) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.client = objects.New(f.store, objects.Options{Now: f.now, KeepTaints: true})
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
func (f *Fake) ExpireLeases() { f.store.End(true) }

// EndsLeases reports whether ExpireLeases was called.
func (f *Fake) EndsLeases() bool { return f.store.Ends() }

// RequestPace has it ask all hosts for Leases that are good for that long, as a person
// writes it; nothing requests none.
func (f *Fake) RequestPace(duration string) {
	if err := objectstest.RequestPace(context.Background(), f.store, duration); err != nil {
		panic(err) // no fault befalls this store by itself
	}
}

// Create stores a Node as someone else would, a person or a kubelet, in place of
// one that is there.
func (f *Fake) Create(node *corev1.Node) {
	f.mu.Lock()
	f.created++
	next := node.DeepCopy()
	next.UID, next.CreationTimestamp = types.UID(fmt.Sprintf("fake-%d", f.created)), metav1.NewTime(f.now().Truncate(time.Second))
	f.mu.Unlock()
	value, err := json.Marshal(next)
	if err != nil {
		panic(err) // an API type
	}
	key := objects.Key{Kind: objects.Node, Node: node.Name}
	err = f.store.Edit(key, func([]byte) []byte { return value })
	if errors.Is(err, controlplane.ErrNotFound) {
		_, err = f.store.Put(context.Background(), key, objects.Put{Value: value})
	}
	if err != nil {
		panic(err) // no fault befalls this store by itself
	}
}

// Type returns "fake".
func (f *Fake) Type() string { return f.store.Type() }

// Endpoint returns "memory".
func (f *Fake) Endpoint() string { return f.store.Endpoint() }

// Close does nothing.
func (f *Fake) Close() error { return nil }

// serve has a call served, unless a fault befalls it.
func serve[T any](ctx context.Context, f *Fake, m Method, name string, call func(*objects.Client, Fault) (T, error)) (T, error) {
	var none T
	fault, err := f.Begin(ctx, m, fmt.Sprintf("%q", name))
	if err != nil {
		return none, err
	}
	f.mu.Lock()
	client := f.client
	f.mu.Unlock()
	answer, err := call(client, fault)
	if err == nil {
		err = fault.Answer()
	}
	if err != nil {
		return none, err
	}
	return answer, nil
}

// done is serve for calls that answer nothing.
func done(ctx context.Context, f *Fake, m Method, name string, call func(*objects.Client, Fault) error) error {
	_, err := serve(ctx, f, m, name, func(c *objects.Client, fault Fault) (struct{}, error) { return struct{}{}, call(c, fault) })
	return err
}

// Register implements controlplane.Client.
func (f *Fake) Register(ctx context.Context, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	return serve(ctx, f, Register, node.Name, func(c *objects.Client, _ Fault) (*corev1.Node, error) {
		f.mu.Lock()
		keeps := f.keepsNodes
		f.mu.Unlock()
		if keeps && !opts.AdoptOnly {
			adopt := opts
			adopt.AdoptOnly = true
			if stored, err := c.Register(ctx, node, adopt); !errors.Is(err, controlplane.ErrNotFound) {
				return stored, err
			}
		}
		return c.Register(ctx, node, opts)
	})
}

// Node implements controlplane.Client.
func (f *Fake) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return serve(ctx, f, Node, name, func(c *objects.Client, _ Fault) (*corev1.Node, error) { return c.Node(ctx, name) })
}

// UpdateStatus implements controlplane.Client.
func (f *Fake) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	return serve(ctx, f, UpdateStatus, node.Name, func(c *objects.Client, _ Fault) (*corev1.Node, error) { return c.UpdateStatus(ctx, node) })
}

// UpdateConditions implements controlplane.ConditionWriter.
func (f *Fake) UpdateConditions(ctx context.Context, node *corev1.Node, gone []corev1.NodeConditionType) (*corev1.Node, error) {
	return serve(ctx, f, UpdateConditions, node.Name, func(c *objects.Client, _ Fault) (*corev1.Node, error) {
		return c.UpdateConditions(ctx, node, gone)
	})
}

// Cordon implements controlplane.Cordoner.
func (f *Fake) Cordon(ctx context.Context, name string, unschedulable bool) (*corev1.Node, error) {
	err := f.Edit(ctx, name, func(node *corev1.Node) { node.Spec.Unschedulable = unschedulable })
	if err != nil {
		return nil, fmt.Errorf("cordon node %q: %w", name, err)
	}
	return f.Node(ctx, name)
}

// Annotate implements controlplane.Annotator.
func (f *Fake) Annotate(ctx context.Context, name string, uid types.UID, key, value string) (*corev1.Node, error) {
	return serve(ctx, f, Annotate, name, func(c *objects.Client, _ Fault) (*corev1.Node, error) {
		return c.Annotate(ctx, name, uid, key, value)
	})
}

// Lease implements controlplane.Client.
func (f *Fake) Lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	return serve(ctx, f, Lease, name, func(c *objects.Client, fault Fault) (*coordinationv1.Lease, error) {
		stored, err := c.Lease(ctx, name)
		return f.stale(fault, stored), err
	})
}

// RenewLease implements controlplane.Client.
func (f *Fake) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return serve(ctx, f, RenewLease, lease.Name, func(c *objects.Client, fault Fault) (*coordinationv1.Lease, error) {
		if fault.Conflict {
			if _, err := c.Lease(ctx, lease.Name); err == nil {
				return nil, fmt.Errorf("renew lease %q: %w", lease.Name, controlplane.ErrConflict)
			}
		}
		stored, err := c.RenewLease(ctx, lease)
		if err == nil {
			f.mu.Lock()
			f.renewed[lease.Name] = [2]*coordinationv1.Lease{stored.DeepCopy(), f.renewed[lease.Name][0]}
			f.mu.Unlock()
		}
		return f.stale(fault, stored), err
	})
}

// stale returns the Lease as it was before it was renewed last, if the fault says so.
func (f *Fake) stale(fault Fault, lease *coordinationv1.Lease) *coordinationv1.Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	if lease == nil || !fault.Stale {
		return lease
	}
	return cmp.Or(f.renewed[lease.Name][1], lease).DeepCopy()
}

// PublishEvent implements controlplane.Client.
func (f *Fake) PublishEvent(ctx context.Context, event *corev1.Event) error {
	return done(ctx, f, PublishEvent, event.Name, func(c *objects.Client, _ Fault) error { return c.PublishEvent(ctx, event) })
}

// Leave implements controlplane.Client.
func (f *Fake) Leave(ctx context.Context, name string, machine controlplane.Identity) error {
	return done(ctx, f, Leave, name, func(c *objects.Client, fault Fault) error {
		if fault.LeaseStays {
			f.store.Inject(objectstest.Delete, Fault{LeaseStays: true, Times: 1})
		}
		return c.Leave(ctx, name, machine)
	})
}

// Fleet implements controlplane.FleetLister.
func (f *Fake) Fleet(ctx context.Context, each controlplane.Member) error {
	return done(ctx, f, Fleet, "all", func(c *objects.Client, _ Fault) error { return c.Fleet(ctx, each) })
}

// WatchNode implements controlplane.NodeWatcher.
func (f *Fake) WatchNode(ctx context.Context, name string, seen chan<- *corev1.Node) error {
	return done(ctx, f, WatchNode, name, func(c *objects.Client, _ Fault) error {
		return f.Watch(ctx, func(ctx context.Context) error { return c.WatchNode(ctx, name, seen) }, WatchNode, Any)
	})
}

// WatchPace implements controlplane.Pacer.
func (f *Fake) WatchPace(ctx context.Context, seen chan<- string) error {
	return done(ctx, f, WatchPace, "all", func(c *objects.Client, _ Fault) error {
		return f.Watch(ctx, func(ctx context.Context) error { return c.WatchPace(ctx, seen) }, WatchPace)
	})
}

// InjectFault makes a fault befall all calls until restore is called; it is the Hinder of a
// conformance.Backend.
func (f *Fake) InjectFault(fault conformance.Fault) (restore func(), err error) {
	befalls, can := map[conformance.Fault]Fault{
		conformance.Slow:     {Delay: 250 * time.Millisecond},
		conformance.NoAnswer: {Hang: true},
		conformance.Lost:     {LoseAnswer: true},
	}[fault]
	if !can {
		return nil, &conformance.AbsentError{Why: fmt.Sprintf("there is no server that could be %s", fault)}
	}
	f.Inject(Any, befalls)
	return f.Heal, nil
}
