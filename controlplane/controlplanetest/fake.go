// Package controlplanetest tests control planes and their users. Run runs the suite of package
// conformance as tests. Fake is the control plane of a fleet, in memory, that fails on demand.
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

// FakeMaxEvents is the number of Events that a Fake keeps.
const FakeMaxEvents = 2000

// Method names a method of controlplane.Client.
type Method string

// The methods that can have a Fault.
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

// Fault is the fault of a call. Stale is for Lease and RenewLease, Conflict for RenewLease, and
// LeaseStays for Leave.
type Fault = faulttest.Fault

// Fake is a control plane in memory, for any number of Nodes and agents. It allows no more than
// Kubernetes allows a node. It works under testing/synctest. Use NewFake.
type Fake struct {
	*faulttest.Book[Method]

	// These have no faults.
	controlplane.NodeLister
	controlplane.EventLister
	conformance.Editor
	conformance.EventRemover

	store *objectstest.Store
	now   func() time.Time

	mu         sync.Mutex // guards the fields below
	client     *objects.Client
	created    int                                 // number of Nodes that Create stored
	renewed    map[string][2]*coordinationv1.Lease // the last and the previous renewal of each Lease
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

// NewFake returns an empty control plane without faults. now is its wall clock; time.Now if nil.
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

// Forget simulates a restart of the client: conditions that it has stored so far now count as
// another client's, except those in hostler's domain.
func (f *Fake) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.client = objects.New(f.store, objects.Options{Now: f.now, KeepTaints: true})
}

// KeepNodes makes Register take over Nodes instead of deleting them, as on a cluster in which a
// node may not delete its Node.
func (f *Fake) KeepNodes() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepsNodes = true
}

// ExpireLeases makes Leases expire from now on: the Fake deletes a Lease that was not renewed for
// its duration, by its own monotonic clock.
func (f *Fake) ExpireLeases() { f.store.End(true) }

// EndsLeases reports whether ExpireLeases was called.
func (f *Fake) EndsLeases() bool { return f.store.Ends() }

// RequestPace requests this Lease duration from all hosts, as a person writes it; an empty text
// requests none.
func (f *Fake) RequestPace(duration string) {
	if err := objectstest.RequestPace(context.Background(), f.store, duration); err != nil {
		panic(err) // this store has no faults of its own
	}
}

// Create stores a Node as another client does, such as a person or a kubelet. It replaces an
// existing Node.
func (f *Fake) Create(node *corev1.Node) {
	f.mu.Lock()
	f.created++
	next := node.DeepCopy()
	next.UID, next.CreationTimestamp = types.UID(fmt.Sprintf("fake-%d", f.created)), metav1.NewTime(f.now().Truncate(time.Second))
	f.mu.Unlock()
	value, err := json.Marshal(next)
	if err != nil {
		panic(err) // cannot fail for an API type
	}
	key := objects.Key{Kind: objects.Node, Node: node.Name}
	err = f.store.Edit(key, func([]byte) []byte { return value })
	if errors.Is(err, controlplane.ErrNotFound) {
		_, err = f.store.Put(context.Background(), key, objects.Put{Value: value})
	}
	if err != nil {
		panic(err) // this store has no faults of its own
	}
}

// Type returns "fake".
func (f *Fake) Type() string { return f.store.Type() }

// Endpoint returns "memory".
func (f *Fake) Endpoint() string { return f.store.Endpoint() }

// Close does nothing.
func (f *Fake) Close() error { return nil }

// serve executes a call, unless a fault prevents it.
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

// done is serve for calls that return only an error.
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
func (f *Fake) Cordon(ctx context.Context, name string, unschedulable, own bool) (*corev1.Node, error) {
	err := f.Edit(ctx, name, func(node *corev1.Node) { controlplane.SetCordon(node, unschedulable, own) })
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

// stale returns the previous renewal of the Lease, if the fault says so.
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

// InjectFault causes a fault in all calls until restore is called. It is the Inject of a
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
