// Package reboots has the reboot slots of a fleet on a server: it gives them to FleetLock clients, and
// frees those of Nodes that were deleted. What is decided, and what is stored, is in package slots.
//
// Any replica gives slots. Only the leader frees those of deleted Nodes.
package reboots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Name is the controller's name in the configuration, in elections and in metrics.
const Name = "reboots"

// interval is from one read of the groups to the next.
const interval = 10 * time.Second

// ErrNoGroup means that a group is not configured.
var ErrNoGroup = errors.New("there is no such group")

// Policies are the configured groups by name.
type Policies map[string]slots.Policy

// Controller has the slots of all groups. It is safe for concurrent use.
type Controller struct {
	*executor.Executor[Change]
	store   store.Store
	groups  *slots.Groups
	contact *store.Contact
	nodes   *store.Table[slots.Node]
	changed loop.Signal
	reread  loop.Signal
	self    string // the name of this server, for records
	log     *slog.Logger

	mu       sync.Mutex // guards what follows
	policies Policies
	known    map[string]known // by group, as they were read last
	all      slots.Nodes      // at the last decision
}

// known is a group as it was read or changed last.
type known struct {
	state slots.State
	err   error
}

// Change frees the slots of holders whose Nodes were deleted.
type Change struct {
	Group   string
	Holders []slots.Holder
	object  string
}

// Object implements executor.Action.
func (c Change) Object() string { return c.object }

// Version implements executor.Action.
func (c Change) Version() string { return c.IDs() }

// IDs names the holders.
func (c Change) IDs() string {
	var ids []string
	for _, h := range c.Holders {
		ids = append(ids, h.ID)
	}
	return strings.Join(ids, ", ")
}

// New returns a controller. The zoneLabels are those of node-lifecycle, and self names this server in what
// it records.
func New(s store.Store, groups *slots.Groups, contact *store.Contact, policies Policies, zoneLabels []string, self string, log *slog.Logger) *Controller {
	c := &Controller{
		store: s, groups: groups, contact: contact, changed: loop.NewSignal(), reread: loop.NewSignal(), self: self,
		log: log.With("component", Name), policies: policies, known: map[string]known{},
	}
	c.nodes = store.NewTable(func(before slots.Node, o store.Object, _ bool) (slots.Node, bool) {
		now := nodeOf(o, zoneLabels)
		return now, now != before
	}, c.changed.Send)
	c.Executor = executor.New(executor.Job[Change]{Decide: c.decide, Write: c.write, Done: func(Change) {}}, c.changed, c.log)
	return c
}

// nodeOf is what decisions need of a Node.
func nodeOf(o store.Object, zoneLabels []string) slots.Node {
	node := o.(*corev1.Node)
	n := slots.Node{Name: node.Name, UID: node.UID, BootID: node.Status.NodeInfo.BootID, Zone: lifecycle.ZoneOf(node.Labels, zoneLabels), Group: slots.DefaultGroup}
	if group := node.Labels[slots.LabelGroup]; group != "" {
		n.Group = group
	}
	_, n.Excluded = node.Labels[lifecycle.LabelExclude]
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			n.Ready = condition.Status == corev1.ConditionTrue
			break // the first of a type counts, as in Kubernetes
		}
	}
	return n
}

// Nodes takes in the Nodes of the fleet.
func (c *Controller) Nodes() store.Follower { return c.nodes }

// SetPolicies takes over a changed configuration.
func (c *Controller) SetPolicies(policies Policies) {
	c.mu.Lock()
	c.policies = policies
	c.mu.Unlock()
	c.reread.Send()
}

// policy is the configuration of a group; ErrNoGroup.
func (c *Controller) policy(group string) (slots.Policy, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, found := c.policies[group]
	if !found {
		return p, fmt.Errorf("%w: %q: use one of %s", ErrNoGroup, group, strings.Join(slices.Sorted(maps.Keys(c.policies)), ", "))
	}
	return p, nil
}

// ready returns all Nodes; an error while they are not known.
func (c *Controller) ready(now time.Time) (slots.Nodes, error) {
	if _, err := c.contact.Since(now); err != nil {
		return nil, fmt.Errorf("%w: %w", controlplane.ErrUnavailable, err)
	}
	if !c.nodes.Ready() {
		return nil, fmt.Errorf("%w: reading Nodes", controlplane.ErrUnavailable)
	}
	nodes := slots.Nodes{}
	for _, n := range c.nodes.Entries() {
		if n.Name != "" { // one that cannot be read
			nodes[n.Name] = n
		}
	}
	return nodes, nil
}

// Request requests a slot for a FleetLock client. It has one if both results are nil.
func (c *Controller) Request(ctx context.Context, group, id string) (wait *slots.Wait, err error) {
	p, err := c.policy(group)
	if err != nil {
		return nil, err
	}
	nodes, err := c.ready(time.Now())
	if err != nil {
		return nil, err
	}
	had := false
	err = c.change(ctx, group, store.Term{}, func(s *slots.State) error {
		had = s.Holder(id) != nil
		wait = s.Ask(slots.Client{ID: id, By: slots.FleetLock}, p, nodes, time.Now())
		return nil
	})
	if err == nil && wait == nil && !had {
		c.log.Info("gave slot", "group", group, "id", id, "by", slots.FleetLock)
	}
	return wait, err
}

// GiveBack frees the slot of a FleetLock client. It is no error if it has none.
func (c *Controller) GiveBack(ctx context.Context, group, id string) error {
	if _, err := c.policy(group); err != nil {
		return err
	}
	gave := false
	err := c.change(ctx, group, store.Term{}, func(s *slots.State) error {
		gave = s.GiveBack(id, time.Now())
		return nil
	})
	if err == nil && gave {
		c.log.Info("slot given back", "group", group, "id", id)
	}
	return err
}

// Release frees the slot of a client, or ends its request, as a person has decided. The error is
// controlplane.ErrNotFound if there is neither.
func (c *Controller) Release(ctx context.Context, group, id, who, reason string) error {
	if _, err := c.policy(group); err != nil {
		return err
	}
	err := c.change(ctx, group, store.Term{}, func(s *slots.State) error {
		if !s.Release(id, who, reason, time.Now()) {
			return fmt.Errorf("%q neither holds a slot of group %s nor waits for one: %w", id, group, controlplane.ErrNotFound)
		}
		return nil
	})
	if err == nil {
		c.log.Warn("slot released", "group", group, "id", id, "by", who, "reason", slots.Shorten(reason))
	}
	return err
}

// change changes a group, and takes in what is stored then.
func (c *Controller) change(ctx context.Context, group string, term store.Term, edit func(*slots.State) error) error {
	state, err := c.groups.Change(ctx, group, term, edit)
	if err == nil {
		c.take(group, known{state: state})
	}
	return err
}

// take takes in a group as it is stored.
func (c *Controller) take(group string, k known) {
	c.mu.Lock()
	if k.err != nil {
		k.state = c.known[group].state // as it was
	}
	c.known[group] = k
	c.mu.Unlock()
	c.changed.Send()
}

// Refresh reads the groups: other servers change them too.
func (c *Controller) Refresh(ctx context.Context) error {
	c.mu.Lock()
	groups := slices.Sorted(maps.Keys(c.policies))
	c.mu.Unlock()
	var failed []error
	for _, group := range groups {
		state, err := c.groups.Get(ctx, group)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.take(group, known{state, err})
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// RunReads reads the groups now and then until ctx ends.
func (c *Controller) RunReads(ctx context.Context, heartbeat func(error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := c.Refresh(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		heartbeat(err)
		select {
		case <-ticker.C:
		case <-c.reread:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// decide returns which slots are to be freed.
func (c *Controller) decide(now time.Time) ([]Change, time.Time, error) {
	nodes, err := c.ready(now)
	if err != nil {
		return nil, time.Time{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = nodes
	var due []Change
	for _, group := range slices.Sorted(maps.Keys(c.policies)) {
		k, read := c.known[group]
		if !read {
			return nil, time.Time{}, errors.New("reading groups")
		}
		if holders := deleted(k.state.Holders, nodes); len(holders) > 0 {
			due = append(due, Change{group, holders, c.groups.Object(group)})
		}
	}
	return due, now.Add(interval), nil
}

// deleted returns the holders whose Nodes were deleted.
func deleted(holders []slots.Holder, nodes slots.Nodes) []slots.Holder {
	return slices.DeleteFunc(slices.Clone(holders), func(h slots.Holder) bool { return h.Node == "" || nodes[h.Node].UID == h.UID })
}

// write frees slots, of Nodes that are not there any more: none of them returns with its UID.
func (c *Controller) write(ctx context.Context, term store.Term, change Change) error {
	defer c.reread.Send()
	gone := map[string]bool{}
	for _, h := range change.Holders {
		node, err := c.store.Get(ctx, store.Nodes.Metadata(), h.Node)
		switch {
		case errors.Is(err, controlplane.ErrNotFound), err == nil && node.GetUID() != h.UID:
			gone[h.ID] = true
		case err != nil:
			return err
		}
	}
	var freed []string
	err := c.change(ctx, change.Group, term, func(s *slots.State) error {
		freed = nil
		for _, h := range change.Holders {
			if gone[h.ID] && s.Free(h, c.self, time.Now()) {
				freed = append(freed, h.ID)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(freed) == 0: // the watch was wrong, or another client was faster
		return fmt.Errorf("slots of %s: %w: nobody holds one whose Node was deleted", change.IDs(), controlplane.ErrConflict)
	}
	c.log.Info("freed slots of deleted Nodes", "group", change.Group, "ids", strings.Join(freed, ", "))
	return nil
}
