// Package embedded is the control plane of a host that has none: it keeps the
// Node, its Lease and the last 1,000 Events in the agent's own state, and
// behaves towards the agent as a cluster would, with UIDs, resource versions and
// conflicts.
//
// It serves from memory and has every change written behind; so a disk that is full or slow delays nothing. It holds one Node, this
// host's, and refuses to be a registry of others.
package embedded

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/statefile"
)

// Type is the control plane's name in the configuration.
const Type = "embedded"

// MaxEvents is how many Events are kept.
const MaxEvents = 1000

// Client is the embedded control plane. It implements controlplane.Client, and
// NodeLister, FleetLister, EventLister and Cordoner beside it.
type Client struct {
	nodes, leases, events *statefile.File
	endpoint              string
	log                   *slog.Logger
	now                   func() time.Time

	mu      sync.Mutex // guards all below; held for moments only
	version uint64     // the last resourceVersion given
	node    *corev1.Node
	lease   *coordinationv1.Lease
	past    bool            // the Lease is an earlier run's
	latest  []*corev1.Event // the one that happened longest ago first
}

var (
	_ controlplane.Client      = (*Client)(nil)
	_ controlplane.NodeLister  = (*Client)(nil)
	_ controlplane.EventLister = (*Client)(nil)
	_ controlplane.Cordoner    = (*Client)(nil)
	_ controlplane.FleetLister = (*Client)(nil)
)

// New returns the control plane as an earlier run of this agent left it in
// the folder. The endpoint, shown in status, is the path of the folder. The wall clock is
// now, time.Now if nil.
func New(folder *statefile.Folder, endpoint string, now func() time.Time, log *slog.Logger) *Client {
	if now == nil {
		now = time.Now
	}
	c := &Client{
		nodes: folder.File("nodes"), leases: folder.File("leases"), events: folder.File("events"),
		endpoint: endpoint, now: now, log: log.With("component", "controlplane"),
	}
	c.load()
	return c
}

// Type returns "embedded".
func (c *Client) Type() string { return Type }

// Endpoint returns where the state is kept.
func (c *Client) Endpoint() string { return c.endpoint }

// Close does nothing: the folder is the caller's.
func (c *Client) Close() error { return nil }

// putNode stores a Node, if it differs from the stored one, under the next
// resourceVersion, and returns a copy.
func (c *Client) putNode(node *corev1.Node) (*corev1.Node, error) {
	node.Kind, node.APIVersion = "Node", "v1"
	controlplane.TaintCordon(node, c.now())
	if equality.Semantic.DeepEqual(c.node, node) {
		return node, nil
	}
	node.ResourceVersion = c.nextVersion()
	c.node = node
	c.nodes.Save(c.storedNode)
	return node.DeepCopy(), nil
}

// Node reads the Node.
func (c *Client) Node(ctx context.Context, name string) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "get node", name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil || c.node.Name != name {
		return nil, fmt.Errorf("get node %q: %w", name, controlplane.ErrNotFound)
	}
	return c.node.DeepCopy(), nil
}

// Nodes lists the one Node, if it is registered.
func (c *Client) Nodes(ctx context.Context) ([]corev1.Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list nodes: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil {
		return nil, nil
	}
	return []corev1.Node{*c.node.DeepCopy()}, nil
}

// UpdateStatus replaces the Node's status, but for addresses where there are none
// in it: there are no other writers.
func (c *Client) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "update status of node", node.Name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil || c.node.Name != node.Name || node.UID != "" && node.UID != c.node.UID {
		return nil, fmt.Errorf("update status of node %q: %w", node.Name, controlplane.ErrNotFound)
	}
	if err := controlplane.CheckOwner(c.node, node); err != nil {
		return nil, fmt.Errorf("update status: %w", err)
	}
	updated := c.node.DeepCopy()
	node.Status.DeepCopyInto(&updated.Status)
	if len(updated.Status.Addresses) == 0 {
		updated.Status.Addresses = c.node.Status.Addresses
	}
	return c.putNode(updated)
}

// Leave forgets the Node and its Lease.
func (c *Client) Leave(ctx context.Context, name string, machine controlplane.Identity) error {
	if err := controlplane.CheckCall(ctx, "leave: delete node", name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node != nil && c.node.Name == name {
		if err := controlplane.CheckLeave(c.node, machine); err != nil {
			return fmt.Errorf("leave: %w", err)
		}
		c.node = nil
		c.nodes.Save(c.storedNode)
	}
	if c.leaseOf(name) != nil {
		c.lease = nil
		c.leases.Save(c.storedLease)
	}
	return nil
}

// Lease reads the Lease.
func (c *Client) Lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	if err := controlplane.CheckCall(ctx, "get lease", name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if lease := c.leaseOf(name); lease != nil {
		return lease.DeepCopy(), nil
	}
	return nil, fmt.Errorf("get lease %q: %w", name, controlplane.ErrNotFound)
}

// leaseOf is the Lease if it has that name, else nil.
func (c *Client) leaseOf(name string) *coordinationv1.Lease {
	if c.lease == nil || c.lease.Name != name {
		return nil
	}
	return c.lease
}

// RenewLease stores the Lease.
func (c *Client) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if err := controlplane.CheckCall(ctx, "renew lease", lease.Name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := lease.DeepCopy()
	next.Kind, next.APIVersion = "Lease", coordinationv1.SchemeGroupVersion.String()
	save := c.leases.SaveLazily
	switch stored := c.leaseOf(lease.Name); {
	case stored == nil, c.past && controlplane.HeldByAnother(stored, lease): // who has ended: see Register
		next.UID, next.CreationTimestamp = newUID(), metav1.NewTime(c.now().Truncate(time.Second))
		save = c.leases.Save
	case stored.ResourceVersion != lease.ResourceVersion:
		return nil, fmt.Errorf("renew lease %q: %w", lease.Name, controlplane.ErrConflict)
	default:
		next.UID, next.CreationTimestamp = stored.UID, stored.CreationTimestamp
	}
	next.ResourceVersion = c.nextVersion()
	c.lease, c.past = next, false
	save(c.storedLease)
	return next.DeepCopy(), nil
}

// PublishEvent stores the Event as the latest, in place of one of its name or,
// if there are 1,000, of the oldest.
func (c *Client) PublishEvent(ctx context.Context, e *corev1.Event) error {
	if err := controlplane.CheckCall(ctx, "publish event", e.Name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := e.DeepCopy()
	next.Kind, next.APIVersion = "Event", "v1"
	next.UID, next.CreationTimestamp = newUID(), metav1.NewTime(c.now().Truncate(time.Second))
	next.ResourceVersion = c.nextVersion()
	i := slices.IndexFunc(c.latest, func(other *corev1.Event) bool { return other.Name == e.Name && other.Namespace == e.Namespace })
	if i >= 0 {
		next.UID, next.CreationTimestamp = c.latest[i].UID, c.latest[i].CreationTimestamp
		c.latest = slices.Delete(c.latest, i, i+1)
	}
	c.latest = append(slices.Delete(c.latest, 0, max(0, len(c.latest)+1-MaxEvents)), next)
	c.events.Save(c.storedEvents)
	return nil
}

// Events lists what is kept, the one that happened longest ago first.
func (c *Client) Events(ctx context.Context) ([]corev1.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list events: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	events := make([]corev1.Event, 0, len(c.latest))
	for _, e := range c.latest {
		events = append(events, *e.DeepCopy())
	}
	return events, nil
}

// nextVersion gives out the next resourceVersion.
func (c *Client) nextVersion() string {
	c.version++
	return strconv.FormatUint(c.version, 10)
}

// newUID is a random UID, as RFC 9562 version 4.
func newUID() types.UID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its own documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}
