package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Name is the controller's name in the configuration, in elections and in metrics.
const Name = "node-lifecycle"

// Controller executes decisions while it leads. It fills its cache on every replica, so that a new
// leader does not have to read the fleet first.
type Controller struct {
	OnDone func(Change) // called after a change was stored; set it before Run; may be nil

	*executor.Executor[Change]
	store   store.Store
	cache   *Cache
	contact *store.Contact
	changed loop.Signal
	checks  *checks
	marker  *marker
	log     *slog.Logger
	decider decider

	mu       sync.Mutex // guards the fields below
	policy   Policy
	decision Decision
	since    time.Time // since when silence counted in the last decision; zero if there was none
	term     time.Time // since when this server leads; zero while it does not
}

// decider is the memory of decisions. The goroutine of Run owns it.
type decider struct {
	lastTainted map[string]time.Time // by zone
	nodes       map[string]time.Time // Host.Turn by name
	caughtUp    time.Time            // Controller.term for which lastTainted has all that earlier leaders did
	allDown     bool
	restart     time.Time // when not all zones were down any more; time before it does not count against hosts
}

// Report is the state of the controller. It is immutable.
type Report struct {
	executor.Report
	Decision   Decision
	Unreadable map[string]error // why objects cannot be read, by KIND/NAME
	Marks      []Mark           // due marks
	Marking    executor.Report
}

// New returns a controller for the Nodes of a store and the pods on them. The cache of pods sends
// podsChanged.
func New(s store.Store, contact *store.Contact, policy Policy, zoneLabels []string, pods *podcache.Cache, podsChanged loop.Signal, log *slog.Logger) *Controller {
	changed := loop.NewSignal()
	c := &Controller{
		store: s, contact: contact, changed: changed, policy: policy, log: log.With("component", Name),
		cache:   NewCache(s.EndsLeases(), zoneLabels, changed, podsChanged),
		decider: decider{lastTainted: map[string]time.Time{}, nodes: map[string]time.Time{}},
	}
	c.checks = newChecks(s, c.cache, changed, c.log)
	c.marker = newMarker(s, contact, c.cache, pods, podsChanged, c.log)
	c.Executor = executor.New(executor.Job[Change]{Facts: c.facts, Decide: c.decide, Write: c.write, Begin: c.begin, Done: c.done}, changed, c.log)
	return c
}

// SetPolicy applies a changed configuration.
func (c *Controller) SetPolicy(policy Policy) {
	c.mu.Lock()
	c.policy = policy
	c.mu.Unlock()
	c.changed.Send()
}

func (c *Controller) currentPolicy() Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy
}

// Report returns the last decision and the state of its execution.
func (c *Controller) Report() Report {
	r := Report{Report: c.Executor.Report(), Unreadable: c.cache.Unreadable(), Marking: c.marker.Report()}
	r.Marks = c.marker.due()
	c.mu.Lock()
	r.Decision = c.decision
	c.mu.Unlock()
	failing := c.checks.failing()
	maps.Copy(failing, r.Failing)
	r.Failing = failing
	return r
}

// Nodes returns the follower for the Nodes of the fleet.
func (c *Controller) Nodes() store.Follower { return c.cache.Nodes() }

// Leases returns the follower for the Leases of hosts.
func (c *Controller) Leases() store.Follower { return c.cache.Leases() }

// Run decides about Nodes until ctx ends, and executes while Lead lasts. heartbeat receives the
// result of each decision.
func (c *Controller) Run(ctx context.Context, heartbeat func(error)) error {
	defer c.checks.start(ctx)()
	return c.Executor.Run(ctx, heartbeat)
}

// RunMarks decides about the pods of Nodes that are not ready, in the same way as Run.
func (c *Controller) RunMarks(ctx context.Context, heartbeat func(error)) error {
	return c.marker.Run(ctx, heartbeat)
}

// Lead writes in a term until ctx ends. No write is in flight when it returns. Run and RunMarks
// must be running.
func (c *Controller) Lead(ctx context.Context, term store.Term) error {
	c.begins(time.Now())
	defer c.begins(time.Time{})
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return c.Executor.Lead(ctx, term) })
	both.Go(func() error { return c.marker.Lead(ctx, term) })
	return both.Wait()
}

// begins records since when this server leads; zero for not any more.
func (c *Controller) begins(term time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = term
}

// decide returns the changes that are due, and starts reads of the Leases of hosts that may be
// dead. A replica that does not lead reads them as well, so that it decides as the leader does.
func (c *Controller) decide(now time.Time) ([]Change, time.Time, error) {
	policy := c.currentPolicy()
	d, suspects, clock, err := c.plan(policy, now)
	if err == nil && c.decider.allDown && !d.AllDown {
		// Hosts that were cut off together with all others get their whole grace period again.
		c.decider.restart = now
		d, suspects, clock, err = c.plan(policy, now)
	}
	if err != nil {
		c.mu.Lock()
		c.decision.Dead, c.since = nil, time.Time{} // they may be old
		c.mu.Unlock()
		return nil, time.Time{}, err
	}
	c.decider.allDown = d.AllDown
	c.checks.read(suspects)
	c.mu.Lock()
	c.decision, c.since = d, clock.Since
	c.mu.Unlock()
	next := now.Add(policy.MonitorPeriod)
	if !d.Next.IsZero() && d.Next.Before(next) {
		next = d.Next
	}
	return d.Now, next, nil
}

// facts returns an error unless Nodes and Leases are known, and recent.
func (c *Controller) facts(now time.Time) error {
	_, err := c.cache.Fresh(c.contact, now)
	return err
}

// plan returns the decision at this moment, the hosts whose Leases have to be read before they count as
// dead, and from when silence counts. The error says why there is no decision.
func (c *Controller) plan(policy Policy, now time.Time) (Decision, []string, Clock, error) {
	fresh, err := c.cache.Fresh(c.contact, now)
	if err != nil {
		return Decision{}, nil, Clock{}, err
	}
	c.mu.Lock()
	term := c.term
	c.mu.Unlock()
	restart := c.decider.restart
	clock := Clock{Now: now, Since: latest(fresh.Since, restart)}
	hosts, suspects := c.cache.Hosts(policy, clock)
	c.decider.turns(hosts, policy, term, fresh.Confirmed, now)
	facts := Facts{Hosts: hosts, LastTainted: c.decider.lastTainted, Checking: c.checks.unchecked(suspects), Confirmed: fresh.Confirmed}
	return Decide(facts, policy, now), suspects, clock, nil
}

// Holds returns an error unless the cause of a not-ready or unreachable taint of a Node holds at
// present, as the last decision found. The states of other objects prove it: a write that evicts a pod
// requires them. The caller has checked the Ready of the Node: for False, the key is that of not-ready,
// for Unknown that of unreachable.
func (c *Controller) Holds(node string, uid types.UID, key string) ([]store.Reference, error) {
	c.mu.Lock()
	d := c.decision
	c.mu.Unlock()
	host, dead := d.Dead[node]
	switch {
	case d.Dead == nil:
		return nil, errors.New("the server does not know which hosts are alive")
	case d.AllDown:
		return nil, errors.New(NoZoneReady)
	case key != corev1.TaintNodeUnreachable:
		return nil, nil
	case !dead || host.UID != uid:
		return nil, errors.New("the host may be alive")
	}
	return []store.Reference{proofOf(node, host.Lease)}, nil
}

// Alive reports whether a host has given a sign of life since a moment, and is not dead by the last decision. A sign
// counts if the store has answered since then without a gap, and if not all zones were down since then. It does not
// count the Ready of its Node: that may be from before the gap, and the store may refuse to store another one.
func (c *Controller) Alive(node string, uid types.UID, since, now time.Time) (s Sign) {
	fresh, err := c.cache.Fresh(c.contact, now)
	if err != nil {
		return s
	}
	c.mu.Lock()
	s.Known = latest(fresh.Since, c.since)
	dead, is := c.decision.Dead[node]
	c.mu.Unlock()
	if !is || dead.UID != uid {
		s.Alive, s.Idle = c.cache.Alive(node, uid, latest(s.Known, since))
	}
	return s
}

// proofOf returns the state of a host's Lease that proves its silence: the version, or none.
func proofOf(node, version string) store.Reference {
	return store.Reference{Kind: store.Leases, Name: node, Version: version}
}

// begin counts a NoExecute taint for the rate of its zone from now on, whether it is stored or not:
// the answer may be lost.
func (c *Controller) begin(change Change) {
	if change.NoExecute() {
		now := time.Now()
		c.decider.lastTainted[change.Zone], c.decider.nodes[change.Node] = now, now
	}
}

// write stores one change.
func (c *Controller) write(ctx context.Context, term store.Term, change Change) error {
	pre := store.Preconditions{UID: change.UID, Version: change.ResourceVersion, Term: term}
	if change.Dead {
		pre.Others = []store.Reference{proofOf(change.Node, change.Lease)}
	}
	began := time.Now() // the rate of a zone counts from then
	_, err := c.store.Update(ctx, store.Nodes, change.Node, pre, store.Editing(func(node *corev1.Node) error {
		change.Apply(node, began)
		return nil
	}))
	if change.Dead && errors.Is(err, controlplane.ErrConflict) {
		c.cache.Recheck(change.Node)
	}
	return err
}

// done logs a change that was stored.
func (c *Controller) done(change Change, log *slog.Logger) {
	if c.OnDone != nil {
		c.OnDone(change)
	}
	for _, step := range change.Steps {
		log.Info("node changed", "node", change.Node, "change", step.Action, "reason", step.Reason)
	}
}
