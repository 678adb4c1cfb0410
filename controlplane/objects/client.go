package objects

import (
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

const (
	// callTimeout limits a call whose caller sets no deadline.
	callTimeout = 10 * time.Second
	// leaseTimeout limits calls on the Lease: a fifth of its default duration of 40 s.
	leaseTimeout = 8 * time.Second
	// listTimeout limits a list with all its pages.
	listTimeout = time.Minute
	// attempts is how often an object is written again while other clients change it. kubelet makes as
	// many attempts.
	attempts = 5
)

// Options configures a Client.
type Options struct {
	// Now is the wall clock for creation times; time.Now if nil.
	Now func() time.Time
	// KeepTaints says that Register does not change the taints of an existing Node, as on a control
	// plane where a host may not do so.
	KeepTaints bool
	// SoleWriter says that no other client writes. Then a status replaces the stored one completely;
	// but if it has no addresses, the stored addresses are kept.
	SoleWriter bool
}

// Client is a control plane on a Store. It implements controlplane.Client and all of its roles.
//
// It remembers only the last state of the Node that it has seen, as the base of its next write. A
// write names that version. If it is refused, the client repeats it from the stored state. So other
// changes of the store, such as a restored backup, do no harm.
type Client struct {
	store Store
	o     Options

	mu      sync.Mutex     // guards the fields below
	known   *known         // nil if the next status update has to read the Node first
	pending *pendingReport // set until the takeover of another machine's Node is reported
	holder  holder         // empty after each registration
}

// known is the last seen state of the Node. It is immutable.
type known struct {
	node    *corev1.Node
	written controlplane.Written // what this client has written into the Node
}

var (
	_ controlplane.Client          = (*Client)(nil)
	_ controlplane.NodeLister      = (*Client)(nil)
	_ controlplane.EventLister     = (*Client)(nil)
	_ controlplane.Cordoner        = (*Client)(nil)
	_ controlplane.Annotator       = (*Client)(nil)
	_ controlplane.NodeWatcher     = (*Client)(nil)
	_ controlplane.ConditionWriter = (*Client)(nil)
	_ controlplane.TaintReconciler = (*Client)(nil)
	_ controlplane.FleetLister     = (*Client)(nil)
	_ controlplane.LeaseEnder      = (*Client)(nil)
	_ controlplane.Pacer           = (*Client)(nil)
)

// New returns a client of the store. The client closes the store.
func New(store Store, o Options) *Client {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Client{store: store, o: o}
}

// Type returns the store's name in the configuration.
func (c *Client) Type() string { return c.store.Type() }

// Endpoint returns the address of the store.
func (c *Client) Endpoint() string { return c.store.Endpoint() }

// ReconcilesTaints marks that Register reconciles taints.
func (c *Client) ReconcilesTaints() {}

// Close closes the store.
func (c *Client) Close() error { return c.store.Close() }

// learn records a Node as the registered one.
func (c *Client) learn(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &known{node: node}
	if c.known != nil && same(c.known.node, node) {
		next.written = c.known.written
	}
	c.known = next
}

// update records a state of the registered Node, even if it belongs to another machine now.
func (c *Client) update(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known != nil && same(c.known.node, node) {
		c.known = &known{node: node, written: c.known.written}
	}
}

// recordWrite records, before a write, that status is stored in the Node, because the answer may be
// lost. It returns the previous record.
func (c *Client) recordWrite(node *corev1.Node, status corev1.NodeStatus) controlplane.Written {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &known{node: node}
	if c.known != nil && same(c.known.node, node) {
		next.written = c.known.written
	}
	before := next.written
	next.written = before.With(status)
	c.known = next
	return before
}

// last returns the last seen state of the Node of that name; nil if there is none.
func (c *Client) last(name string) *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || c.known.node.Name != name {
		return nil
	}
	return c.known.node
}

// forget makes the next status update read the Node first.
func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
}

// same reports whether both are states of one Node.
func same(a, b *corev1.Node) bool { return a.Name == b.Name && a.UID == b.UID }

// storedIn returns the stored object if err is a refusal that contains it.
func storedIn(err error) (Object, bool) {
	conflict, refused := errors.AsType[*ConflictError](err)
	if !refused {
		return Object{}, false
	}
	return conflict.Stored, true
}
