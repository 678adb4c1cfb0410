// Package reboots gives reboot slots to the hosts of a fleet, frees them, and empties Nodes. Package slots has
// the rules for slots, and their record.
//
// The record of a group decides who holds a slot, and the Node mirrors it. docs/explanation/reboot-slots.md has the
// table of states and steps: who makes each step, and what must hold in its write.
//
// Every replica gives slots to FleetLock clients. Only the leader answers the requests that agents write on
// their Nodes, frees slots of deleted Nodes, and evicts pods. Decide is pure.
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

	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/few"
	"hostler.io/hostler/internal/loop"
)

// Name is the controller's name in the configuration, in elections and in metrics.
const Name = "reboots"

// interval is the time between two reads of the groups.
const interval = 10 * time.Second

// restoredTime is how long a host that gives no sign of life may be down for a reboot that a restored store does not
// know. After that, it only counts as not ready.
const restoredTime = longHeld

// unseenTime is how long a host that gives no sign of life keeps others from slots. Its Node can stay Ready without one
// for the duration of its Lease, which may be an hour, or while the store stores nothing. After that, it only counts as
// not ready.
const unseenTime = 5 * time.Minute

// confirmTime is how long a FleetLock client may wait until the Nodes are confirmed. Kubernetes confirms them every ten
// seconds.
const confirmTime = 20 * time.Second

// attempts bounds the attempts of a change of a Node that conflicts with other changes.
const attempts = 5

// mostNamed bounds how many hosts an error names.
const mostNamed = 5

// ErrRestored means that the store may have been restored, so that a FleetLock client gets no slot yet, and must not use
// the one that it has. Its text names who or what is awaited.
var ErrRestored = fmt.Errorf("%w: the store may have been restored", controlplane.ErrUnavailable)

// ErrNoGroup means that a group is not configured.
var ErrNoGroup = errors.New("there is no such group")

// Policies are the configured groups by name.
type Policies map[string]slots.Policy

// Controller manages the slots of all groups. It is safe for concurrent use.
type Controller struct {
	OnEvent func(Event) // called for each Event about a Node; may be nil; set it before Run
	// Alive reports whether a host has given a sign of life since a moment, since the store was away, and since this
	// server started. It is nil if nothing follows the Leases. Set it before Run.
	Alive func(node string, uid types.UID, since, now time.Time) lifecycle.Sign

	*executor.Executor[Action]
	store   store.Store
	evicter store.Evicter // nil if the store cannot evict pods
	pods    *podcache.Cache
	groups  *slots.Groups
	contact *store.Contact
	nodes   *store.Table[Host]
	// turn serializes FleetLock requests: the facts of a large fleet take much memory.
	turn    chan struct{}
	changed loop.Signal
	reread  loop.Signal
	self    string // name of this server in records
	began   time.Time
	log     *slog.Logger

	mu       sync.Mutex // guards the fields below
	policies Policies
	due      map[string]Due     // of the last decision
	blocked  map[string]Blocked // by pod; only pods whose eviction this server has requested
}

// Action is a write that is due.
type Action interface {
	executor.Action
	write(ctx context.Context, c *Controller, term store.Term) error
}

// New returns a controller. pods is the cache for a store.Evicter, and sends changed. zoneLabels are the zone
// labels of controller node-lifecycle. self names this server in records.
func New(s store.Store, groups *slots.Groups, contact *store.Contact, pods *podcache.Cache, changed loop.Signal, policies Policies, zoneLabels []string, self string, log *slog.Logger) *Controller {
	evicter, _ := s.(store.Evicter)
	c := &Controller{
		store: s, evicter: evicter, pods: pods, groups: groups, contact: contact, changed: changed, reread: loop.NewSignal(), turn: make(chan struct{}, 1), self: self, began: time.Now(),
		log: log.With("component", Name), policies: policies, due: map[string]Due{}, blocked: map[string]Blocked{},
	}
	c.nodes = store.NewTable(store.Nodes, taker(zoneLabels), c.changed.Send)
	c.Executor = executor.New(executor.Job[Action]{
		Facts: c.fresh, Decide: c.decide, Done: func(Action, *slog.Logger) {},
		Write: func(ctx context.Context, term store.Term, a Action) error { return a.write(ctx, c, term) },
	}, c.changed, c.log)
	return c
}

// Nodes returns the follower that receives the Nodes of the fleet.
func (c *Controller) Nodes() store.Follower { return c.nodes }

// SetPolicies applies a changed configuration.
func (c *Controller) SetPolicies(policies Policies) {
	c.mu.Lock()
	c.policies = policies
	c.mu.Unlock()
	c.reread.Send()
}

// policy returns the configuration of a group, or ErrNoGroup.
func (c *Controller) policy(group string) (slots.Policy, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, found := c.policies[group]
	if !found {
		return p, fmt.Errorf("%w: %q: use one of %s", ErrNoGroup, group, strings.Join(slices.Sorted(maps.Keys(c.policies)), ", "))
	}
	return p, nil
}

// fresh returns an error unless the Nodes, and the pods if it evicts them, are known and recent.
func (c *Controller) fresh(now time.Time) error {
	if _, err := c.contact.Fresh(now, c.nodes); err != nil || c.evicter == nil {
		return err
	}
	_, err := c.pods.Fresh(c.contact, now)
	return err
}

// facts returns the current facts. With an error, they are not complete enough for a decision.
func (c *Controller) facts(now time.Time) (Facts, error) {
	f := Facts{Groups: map[string]slots.Known{}, Object: c.groups.Object}
	c.mu.Lock()
	f.Policies, f.Blocked, f.Due = maps.Clone(c.policies), maps.Clone(c.blocked), c.due
	c.mu.Unlock()
	unread := false
	for group := range f.Policies {
		k, read := c.groups.Known(group)
		f.Groups[group], unread = k, unread || !read
	}
	fresh, err := c.contact.Fresh(now, c.nodes)
	if err != nil {
		return f, fmt.Errorf("%w: %w", controlplane.ErrUnavailable, err)
	}
	f.Confirmed = fresh.Confirmed
	f.Restored = !fresh.Restored.IsZero() && now.Sub(fresh.Restored) < restoredTime
	f.Started = now.Sub(c.began) < restoredTime || now.Sub(fresh.Since) < restoredTime
	f.Hosts = map[string]Host{}
	for _, h := range c.nodes.Entries() {
		if c.Alive != nil {
			c.see(&h, f.Restored, fresh.Restored, now)
		}
		f.Hosts[h.Name] = h
	}
	if c.evicter != nil {
		f.Pods = c.podsOn
	}
	if unread {
		return f, fmt.Errorf("%w: reading groups", controlplane.ErrUnavailable)
	}
	return f, nil
}

// see sets whether a host has given no sign of life since the store was away. A restored store does not know which
// hosts were about to reboot, or down for that. So each must also have said that it does not, and have had time to
// report it, since the store answered again at a moment, and since its boot.
func (c *Controller) see(h *Host, restored bool, at, now time.Time) {
	switch {
	case restored:
		sign := c.Alive(h.Name, h.UID, at.Add(announceTime), now)
		h.Unseen = !sign.Alive || !sign.Idle && !h.reboots() || now.Sub(h.BootSince) < announceTime
	case h.Ready:
		sign := c.Alive(h.Name, h.UID, time.Time{}, now)
		h.Unseen = !sign.Alive
		if !sign.Alive && !sign.Known.IsZero() && now.Sub(sign.Known) > unseenTime {
			h.Unseen, h.Ready = false, false
		}
	}
}

// podsOn returns the pods of a Node.
func (c *Controller) podsOn(node string) ([]podcache.Pod, error) {
	if _, err := c.pods.Fresh(c.contact, time.Now()); err != nil {
		return nil, err
	}
	return c.pods.On(node), nil
}

// all returns the facts, or an error while the Nodes are not known or not fresh. Each change that gives a slot calls it.
func (c *Controller) all(now time.Time) (Facts, error) {
	f, err := c.facts(now)
	if err != nil && f.Hosts == nil {
		return f, err
	}
	return f, nil
}

// Request requests a slot for a FleetLock client. If both results are nil, the client has a slot. The Nodes must be
// known up to this request: it waits for that, for up to confirmTime.
func (c *Controller) Request(ctx context.Context, group, id string) (wait *slots.Wait, err error) {
	asked := time.Now()
	wait, err = c.request(ctx, group, id, asked)
	if err != nil || wait == nil || wait.Reason != slots.Unconfirmed {
		return wait, err
	}
	for time.Since(asked) < confirmTime {
		if err := bounded.Sleep(ctx, store.ConfirmInterval/2); err != nil {
			return nil, err
		}
		if fresh, err := c.contact.Fresh(time.Now(), c.nodes); err != nil || !fresh.Confirmed.Before(asked) {
			break
		}
	}
	return c.request(ctx, group, id, asked)
}

// request makes one attempt of a request that was made at a time.
func (c *Controller) request(ctx context.Context, group, id string, asked time.Time) (wait *slots.Wait, err error) {
	p, err := c.policy(group)
	if err != nil {
		return nil, err
	}
	if k, _ := c.groups.Known(group); k.Err == nil {
		if wait := k.QueueFull(id, time.Now()); wait != nil {
			return wait, nil
		}
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("request a slot for %q: %w: %w", id, controlplane.ErrUnavailable, context.Cause(ctx))
	}
	f, err := c.all(time.Now())
	if err != nil {
		return nil, err
	}
	held := f.held()
	awaited := f.awaited(group, held)
	restored := fmt.Errorf("%w, hosts that reboot may have no slot in the record", ErrRestored)
	if len(awaited) > 0 {
		restored = fmt.Errorf("%w: %s", restored, few.Names(awaited, mostNamed))
	}
	if len(f.adopted(group, held)) > 0 {
		return nil, restored
	}
	had, nodes := false, f.nodes(held)
	var lacking []string
	for _, n := range nodes {
		if n.Group == group && n.Slotless {
			lacking = append(lacking, n.Name)
		}
	}
	err = c.give(ctx, group, store.Term{}, func(s *slots.State) error {
		had = s.Holder(id) != nil
		// The client may have given back the slot that a restored record has again. A server that has started since
		// then only knows that hosts reboot without a slot.
		switch {
		case !had:
		case f.Restored && len(awaited) > 0:
			return restored
		case len(lacking) > 0 && len(s.Holders)+len(lacking) > p.Slots:
			return fmt.Errorf("%w, hosts reboot without a slot: %s", ErrRestored, few.Names(lacking, mostNamed))
		case f.Restored && len(s.Holders) > p.Slots:
			return fmt.Errorf("%w, the record has more holders than slots (%s): run `hostler fleet slots release` for each that does not reboot",
				ErrRestored, few.Names(holders(s), mostNamed))
		}
		s.Confirm(f.Confirmed, Due{id: asked})
		wait = s.Ask(slots.Client{ID: id, Type: slots.FleetLock}, p, nodes, time.Now())
		return nil
	})
	if err == nil && wait == nil && !had {
		c.log.Info("gave slot", "group", group, "id", id, "by", slots.FleetLock)
	}
	return wait, err
}

// holders returns the IDs of the clients that have a slot.
func holders(s *slots.State) (ids []string) {
	for _, h := range s.Holders {
		ids = append(ids, h.ID)
	}
	return ids
}

// GiveBack frees the slot of a FleetLock client. It returns no error if the client has none.
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

// Release frees the slot of a client, or removes its request, for a person. It returns
// controlplane.ErrNotFound if there is neither, and ErrAsks for an agent that only waits.
func (c *Controller) Release(ctx context.Context, group, id, who, reason string) error {
	if _, err := c.policy(group); err != nil {
		return err
	}
	err := errGranted
	for attempt := 1; err == errGranted && attempt <= attempts; attempt++ {
		err = c.release(ctx, group, id, who, reason)
	}
	switch {
	case err == nil:
		c.log.Warn("slot released", "group", group, "id", id, "by", who, "reason", slots.Shorten(reason))
	case err == errGranted:
		err = fmt.Errorf("release the slot of %q: %w: %w", id, controlplane.ErrConflict, err)
	}
	return err
}

// ErrAsks means that an agent has no slot, and requests one again as long as its host wants to reboot.
var ErrAsks = errors.New("the host holds no slot, and only the host can withdraw its request")

// ErrKept means that a slot cannot end, because its end cannot be written on the Node.
var ErrKept = errors.New("the end of the slot cannot be written on the Node")

// errGranted means that a client has got another slot meanwhile.
var errGranted = errors.New("the client has just received a slot")

// release makes one attempt. It first writes on the Node of an agent that its slot has ended, because another host
// may get the slot as soon as it is free.
func (c *Controller) release(ctx context.Context, group, id, who, reason string) error {
	state, err := c.groups.Get(ctx, group)
	if err != nil {
		return err
	}
	held := state.Holder(id)
	if held != nil && held.Type == slots.Agent {
		if err := c.end(ctx, &holding{Holder: *held, group: group}); err != nil {
			return fmt.Errorf("release the slot of %q: %w: %w", id, ErrKept, err)
		}
	}
	return c.change(ctx, group, store.Term{}, func(s *slots.State) error {
		switch now := s.Holder(id); {
		case now != nil && !now.Is(held):
			return errGranted
		case now == nil && s.Request(id) != nil && s.Request(id).Type == slots.Agent:
			return ErrAsks
		case !s.Release(id, who, reason, time.Now()):
			return fmt.Errorf("%q neither holds a slot of group %s nor waits for one: %w", id, group, controlplane.ErrNotFound)
		}
		return nil
	})
}

// give changes a group, may give slots, and triggers a new decision.
func (c *Controller) give(ctx context.Context, group string, term store.Term, edit func(*slots.State) error) error {
	_, err := c.groups.Give(ctx, group, c.others(group), term, edit)
	c.changed.Send()
	return err
}

// others returns the names of all groups but one.
func (c *Controller) others(group string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.policies)), func(name string) bool { return name == group })
}

// change changes a group, and triggers a new decision.
func (c *Controller) change(ctx context.Context, group string, term store.Term, edit func(*slots.State) error) error {
	_, err := c.groups.Change(ctx, group, term, edit)
	c.changed.Send()
	return err
}

// Refresh reads the groups, because other servers also change them.
func (c *Controller) Refresh(ctx context.Context) error {
	c.mu.Lock()
	groups := slices.Sorted(maps.Keys(c.policies))
	c.mu.Unlock()
	var failed []error
	for _, group := range groups {
		_, err := c.groups.Get(ctx, group)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		failed = append(failed, err)
	}
	c.changed.Send()
	return errors.Join(failed...)
}

// Lead writes under a term until ctx ends. Before, it reads the groups, which the last leader may have changed:
// a slot that was given back may belong to another host now.
func (c *Controller) Lead(ctx context.Context, term store.Term) error {
	for {
		_ = c.Refresh(ctx) // current checks the result of each read
		if c.current() {
			return c.Executor.Lead(ctx, term)
		}
		if err := bounded.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// current reports whether the last read of each group succeeded. It ignores groups whose stored data is
// invalid, since a retry does not help.
func (c *Controller) current() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for group := range c.policies {
		if k, read := c.groups.Known(group); !read || k.Err != nil && !errors.Is(k.Err, store.ErrUnreadable) {
			return false
		}
	}
	return true
}

// RunReads reads the groups at intervals, and when reread is sent, until ctx ends.
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

// decide returns the actions that are due, and when to decide again.
func (c *Controller) decide(now time.Time) ([]Action, time.Time, error) {
	f, err := c.facts(now)
	if err != nil {
		return nil, time.Time{}, err
	}
	d := Decide(f, now)
	c.decided(d)
	for _, h := range f.held() {
		if host := f.Hosts[h.Node]; host.released() && now.Sub(host.SlotSince) < time.Second {
			c.reread.Send() // another server is freeing the slot for a person
		}
	}
	due := make([]Action, 0, len(d.Changes)+len(d.Answers)+len(d.Evictions))
	for _, change := range d.Changes {
		due = append(due, change)
	}
	for _, answer := range d.Answers {
		due = append(due, answer)
	}
	for _, eviction := range d.Evictions {
		due = append(due, eviction)
	}
	next := now.Add(interval)
	if !d.Next.IsZero() && d.Next.Before(next) {
		next = d.Next
	}
	return due, next, nil
}
