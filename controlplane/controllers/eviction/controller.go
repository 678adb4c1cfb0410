package eviction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Name is the controller's name in the configuration, in elections and in metrics.
const Name = "eviction"

// longestWait is the longest time between decisions.
const longestWait = 10 * time.Second

// The condition of a pod that is evicted, as Kubernetes' taint eviction controller sets it.
const (
	targetReason  = "DeletionByTaintManager"
	targetMessage = "evicted due to a NoExecute taint of its Node"
)

// Controller evicts pods while it leads. It fills its caches on every replica.
type Controller struct {
	OnDone func(Eviction) // called after an eviction was stored; set it before Run; may be nil
	// Outages knows whether the causes of not-ready and unreachable taints hold. It is nil if controller
	// node-lifecycle does not run here. Set it before Run.
	Outages Outages

	*executor.Executor[Eviction]
	store   store.Store
	kind    store.Kind
	byHosts bool // hosts report their pods, and delete the object of a pod that has ended
	contact *store.Contact
	nodes   *store.Table[Host]
	pods    *podcache.Cache
	log     *slog.Logger

	mu       sync.Mutex // guards decision
	decision Decision
}

// Outages is the controller node-lifecycle.
type Outages interface {
	// Holds returns an error unless the cause of the taint with that key holds at present. A write that
	// evicts a pod requires the returned states.
	Holds(node string, uid types.UID, key string) ([]store.Reference, error)
}

// Report is the state of the controller. It is immutable.
type Report struct {
	executor.Report
	Decision Decision
}

// New returns a controller for the pods of a store. The cache of pods sends changed.
func New(s store.Store, contact *store.Contact, pods *podcache.Cache, changed loop.Signal, log *slog.Logger) *Controller {
	c := &Controller{
		store: s, byHosts: s.EndsLeases(), kind: store.Pods(s.EndsLeases()), contact: contact,
		nodes: store.NewTable(store.Nodes, hostOf, changed.Send), pods: pods, log: log.With("component", Name),
	}
	c.Executor = executor.New(executor.Job[Eviction]{Facts: c.facts, Decide: c.decide, Write: c.evict, Done: c.done}, changed, c.log)
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

// facts returns an error unless Nodes and pods are known, and recent.
func (c *Controller) facts(now time.Time) error {
	if _, err := c.contact.Fresh(now, c.nodes); err != nil {
		return err
	}
	_, err := c.pods.Fresh(c.contact, now)
	return err
}

// decide returns the evictions that are due.
func (c *Controller) decide(now time.Time) ([]Eviction, time.Time, error) {
	if err := c.facts(now); err != nil {
		return nil, time.Time{}, err
	}
	d := Decide(c.hosts(), now)
	c.mu.Lock()
	c.decision = d
	c.mu.Unlock()
	next := now.Add(longestWait)
	if !d.Next.IsZero() && d.Next.Before(next) {
		next = d.Next
	}
	return d.Now, next, nil
}

// hosts returns the Nodes that pods may have to leave.
func (c *Controller) hosts() []Host {
	hosts := c.nodes.Select(func(h Host) bool { return len(h.Taints) > 0 })
	if c.byHosts { // on Kubernetes, the pod garbage collector removes pods without a Node
		for _, name := range c.pods.Nodes() {
			if !c.nodes.Has(name) {
				hosts = append(hosts, Host{Name: name, Gone: true})
			}
		}
	}
	for i := range hosts {
		hosts[i].Pods = c.pods.On(hosts[i].Name)
		hosts[i].Taints = c.unproven(hosts[i])
	}
	return hosts
}

// unproven returns the taints of a host, and why those evict nobody whose causes may have ended.
func (c *Controller) unproven(h Host) []Taint {
	taints := slices.Clone(h.Taints)
	for i, t := range taints {
		if c.Outages != nil && t.outage() {
			if _, err := c.Outages.Holds(h.Name, h.UID, causeOf(t.Taint, h.Unknown)); err != nil {
				taints[i].Unproven = err.Error()
			}
		}
	}
	return taints
}

// evict removes a pod. It first reads the Node again: the taint may have been removed after the
// cache was updated.
func (c *Controller) evict(ctx context.Context, term store.Term, e Eviction) error {
	proofs, err := c.confirm(ctx, e)
	if err != nil {
		return err
	}
	pre := store.Preconditions{UID: e.UID, Version: e.ResourceVersion, Term: term, Others: proofs}
	if e.Taint == nil {
		return c.store.Delete(ctx, c.kind, e.Pod, pre, "")
	}
	stored, err := c.store.Update(ctx, c.kind, e.Pod, pre, store.Editing(func(pod *corev1.Pod) error {
		target(pod, metav1.NewTime(time.Now()).Rfc3339Copy(), c.byHosts)
		return nil
	}))
	if err != nil || c.byHosts {
		return err
	}
	pre.Version = stored.GetResourceVersion()
	return c.store.Delete(ctx, c.kind, e.Pod, pre, "")
}

// confirm returns ErrConflict unless the Node still has that taint and its cause holds, or the Node is
// still gone. The write requires the states that it returns.
func (c *Controller) confirm(ctx context.Context, e Eviction) ([]store.Reference, error) {
	stored, err := c.store.Get(ctx, store.Nodes, e.Node)
	if errors.Is(err, controlplane.ErrNotFound) && e.Taint == nil {
		return []store.Reference{{Kind: store.Nodes, Name: e.Node}}, nil
	}
	if err != nil {
		return nil, err
	}
	node, ok := stored.(*corev1.Node)
	if !ok || e.Taint == nil || node.UID != e.NodeUID || !slices.ContainsFunc(taintsOf(node), func(t corev1.Taint) bool {
		return t.MatchTaint(e.Taint) && t.Value == e.Taint.Value && t.TimeAdded.Equal(e.Taint.TimeAdded)
	}) {
		return nil, fmt.Errorf("evict pod %q: %w: node %q has changed", e.Pod, controlplane.ErrConflict, e.Node)
	}
	var proofs []store.Reference
	if c.byHosts { // compared in the write; on Kubernetes, the read above is recent enough
		proofs = append(proofs, store.Reference{Kind: store.Nodes, Name: e.Node, UID: node.UID, Version: node.ResourceVersion})
	}
	if c.Outages == nil || !outage(*e.Taint) {
		return proofs, nil
	}
	holds, err := c.Outages.Holds(e.Node, e.NodeUID, causeOf(*e.Taint, unknown(node)))
	if err != nil {
		return nil, fmt.Errorf("evict pod %q: %w: %w", e.Pod, controlplane.ErrConflict, err)
	}
	return append(proofs, holds...), nil
}

// target marks a pod as about to be removed. If hosts report their pods, it also requests the
// deletion of the pod's object; the host deletes the object once the pod has ended.
func target(pod *corev1.Pod, now metav1.Time, request bool) {
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: targetReason, Message: targetMessage, LastTransitionTime: now,
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition.Type })
	switch {
	case i < 0:
		pod.Status.Conditions = append(pod.Status.Conditions, condition)
	case pod.Status.Conditions[i].Status != corev1.ConditionTrue:
		pod.Status.Conditions[i] = condition
	}
	if request && pod.DeletionTimestamp == nil {
		grace := int64(0)
		if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
			grace = *s
		}
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
	}
}

// done logs an eviction.
func (c *Controller) done(e Eviction, log *slog.Logger) {
	message := "pod evicted"
	if e.Taint == nil {
		message = "object of a pod removed"
	}
	if c.OnDone != nil {
		c.OnDone(e)
	}
	log.Info(message, "pod", e.Pod, "node", e.Node, "reason", e.Reason)
}
