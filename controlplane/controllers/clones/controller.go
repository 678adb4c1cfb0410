package clones

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Name is the controller's name in the configuration, in elections and in metrics.
const Name = "clones"

// interval is the time between decisions. Changes of Nodes do not start a decision: nothing here is
// urgent, and many Nodes may change at once.
const interval = 10 * time.Second

// Controller annotates Nodes while it leads. It follows the Nodes on every replica.
type Controller struct {
	*executor.Executor[Change]
	store   store.Store
	contact *store.Contact
	nodes   *store.Table[entry]
	log     *slog.Logger

	mu       sync.Mutex // guards decision
	decision Decision
}

// Report is the state of the controller. It is immutable.
type Report struct {
	executor.Report
	Decision Decision
}

// New returns a controller for the Nodes of a store.
func New(s store.Store, contact *store.Contact, log *slog.Logger) *Controller {
	c := &Controller{
		store: s, contact: contact, log: log.With("component", Name),
		nodes: store.NewTable(store.Nodes, entryOf, func() {}),
	}
	c.Executor = executor.New(executor.Job[Change]{Facts: c.facts, Decide: c.decide, Write: c.write, Done: c.done}, loop.NewSignal(), c.log)
	return c
}

// Nodes returns the follower for the Nodes of the fleet.
func (c *Controller) Nodes() store.Follower { return c.nodes }

// Report returns the last decision and the state of its execution.
func (c *Controller) Report() Report {
	r := Report{Report: c.Executor.Report()}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Decision = c.decision
	return r
}

// entry is a Host, and the time of its last status by the host's own clock.
type entry struct {
	Host
	heartbeat time.Time
}

// entryOf returns the entry of a Node.
func entryOf(before entry, o store.Object, _ bool) (now entry, _ bool) {
	node := o.(*corev1.Node)
	info := node.Status.NodeInfo
	now.Host = Host{Name: node.Name, UID: node.UID, MachineID: info.MachineID, BootID: info.BootID, Stored: node.Annotations[controlplane.AnnotationSameMachine]}
	if len(validation.IsDNS1123Subdomain(node.Name)) > 0 {
		now.MachineID = "" // no host can have that name
	}
	if ready := controlplane.ConditionOf(node, corev1.NodeReady); ready != nil {
		now.Alive, now.heartbeat = ready.Status != corev1.ConditionUnknown, ready.LastHeartbeatTime.Time
	}
	now.Since, now.Reported = before.Since, before.Reported
	switch {
	case !before.Alive || !now.Alive || now.UID != before.UID || now.MachineID != before.MachineID || now.BootID != before.BootID:
		now.Since, now.Reported = time.Now(), time.Time{}
	case !now.heartbeat.Equal(before.heartbeat):
		now.Reported = time.Now()
	}
	return now, false
}

// facts returns an error unless the Nodes are known, and recent.
func (c *Controller) facts(now time.Time) error {
	_, err := c.contact.Fresh(now, c.nodes)
	return err
}

// decide returns the changes that are due.
func (c *Controller) decide(now time.Time) ([]Change, time.Time, error) {
	if err := c.facts(now); err != nil {
		return nil, time.Time{}, err
	}
	entries := c.nodes.Entries()
	hosts := make([]Host, 0, len(entries))
	for _, e := range entries {
		hosts = append(hosts, e.Host)
	}
	d := Decide(hosts)
	c.mu.Lock()
	c.decision = d
	c.mu.Unlock()
	return d.Now, now.Add(interval), nil
}

// write changes the annotation of a Node if the Node is still of the same machine and boot.
func (c *Controller) write(ctx context.Context, term store.Term, change Change) error {
	_, err := c.store.Update(ctx, store.Nodes, change.Node, store.Preconditions{UID: change.UID, Term: term}, store.Editing(func(node *corev1.Node) error {
		if info := node.Status.NodeInfo; info.MachineID != change.MachineID || info.BootID != change.BootID {
			return fmt.Errorf("node %q: %w: it is of another machine or boot", change.Node, controlplane.ErrConflict)
		}
		if change.Value == "" {
			delete(node.Annotations, controlplane.AnnotationSameMachine)
			return nil
		}
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[controlplane.AnnotationSameMachine] = change.Value
		return nil
	}))
	return err
}

// done logs a change.
func (*Controller) done(change Change, log *slog.Logger) {
	if change.Value == "" {
		log.Info("no other host has the machine ID any more", "node", change.Node)
		return
	}
	log.Warn("hosts have the same machine ID", "node", change.Node, "others", change.Value)
}
