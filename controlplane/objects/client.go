package objects

import (
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

const (
	// callTimeout bounds a call whose caller sets no deadline.
	callTimeout = 10 * time.Second
	// leaseTimeout does so for those on the Lease: a fifth of the 40 s that it is
	// good for by default.
	leaseTimeout = 8 * time.Second
	// listTimeout does so for all pages of a list.
	listTimeout = time.Minute
	// attempts are how often an object is written again while others keep changing it,
	// as many as kubelet makes.
	attempts = 5
)

// Options configures a Client.
type Options struct {
	// Now is the wall clock, which gives objects the time of their creation; time.Now
	// if nil.
	Now func() time.Time
	// KeepTaints has Register leave taints alone once the Node is created, as where a host
	// may not change them.
	KeepTaints bool
	// SoleWriter has a status replace all of the stored one, addresses excepted where it has
	// none: nobody else writes there.
	SoleWriter bool
}

// Client is a control plane on a Store. It implements controlplane.Client and all of its roles.
//
// It remembers only the last seen state of the Node, as the base of its next write. A write names
// that version. If it is refused, the client makes it again from the stored state. So other changes
// of the store, such as a restored backup, do no harm.
type Client struct {
	store Store
	o     Options

	mu      sync.Mutex     // guards what follows
	known   *known         // nil where the next status has to read the Node first
	pending *pendingReport // set while the takeover of another machine's Node is not reported yet
	holder  holder         // none since the Node was registered last
}

// known is the Node as this client has seen it last. It is not changed once it is made.
type known struct {
	node    *corev1.Node
	written controlplane.Written // by this client in this Node
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

// New returns a client over the store, which is the client's to close.
func New(store Store, o Options) *Client {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Client{store: store, o: o}
}

// Type returns the store's name in the configuration.
func (c *Client) Type() string { return c.store.Type() }

// Endpoint returns the address that the store is reached at.
func (c *Client) Endpoint() string { return c.store.Endpoint() }

// ReconcilesTaints says that Register does.
func (c *Client) ReconcilesTaints() {}

// Close closes the store.
func (c *Client) Close() error { return c.store.Close() }

// learn takes a Node for the registered one.
func (c *Client) learn(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &known{node: node}
	if c.known != nil && same(c.known.node, node) {
		next.written = c.known.written
	}
	c.known = next
}

// update remembers a state of the registered Node, also another machine's.
func (c *Client) update(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known != nil && same(c.known.node, node) {
		c.known = &known{node: node, written: c.known.written}
	}
}

// writes records that status is about to be stored in the Node, since the answer may be lost. It
// returns what was written before.
func (c *Client) writes(node *corev1.Node, status corev1.NodeStatus) controlplane.Written {
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

// last is the Node of that name as it was seen last; nil if it was not.
func (c *Client) last(name string) *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || c.known.node.Name != name {
		return nil
	}
	return c.known.node
}

// forget has the next status read the Node first.
func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
}

// same reports whether both are states of one Node.
func same(a, b *corev1.Node) bool { return a.Name == b.Name && a.UID == b.UID }

// instead returns the stored object if err refused a write and has it.
func instead(err error) (Object, bool) {
	conflict, refused := errors.AsType[*ConflictError](err)
	if !refused {
		return Object{}, false
	}
	return conflict.Stored, true
}
