package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/owner"
)

// keyCordon is where the store keeps what a person decided.
const keyCordon = "cordon"

// decision is what a person on this host said last of whether the Node takes new
// pods. It outlives the agent, the boot and the Node.
type decision struct {
	api.Cordon
	// Delivered tells that the control plane has taken it. From then on the
	// control plane is right: whoever changes it there has the later word.
	Delivered bool `json:"delivered"`
}

// cordons keeps the latest decision. It is safe for concurrent use.
type cordons struct {
	store store
	log   *slog.Logger

	mu     sync.Mutex
	latest *decision // nil if nobody has decided
}

// newCordons reads what was decided before this start.
func newCordons(store store, log *slog.Logger) *cordons {
	c := &cordons{store: store, log: log.With("component", "cordon")}
	values, err := store.Load()
	if value, found := values[keyCordon]; err == nil && found {
		var d decision
		if err = json.Unmarshal(value, &d); err == nil {
			c.latest = &d
		}
	}
	if err != nil {
		c.log.Warn("whether a person has cordoned the node is not known; what the control plane says stands", "error", err)
	}
	return c
}

// decided is the latest decision; nil if there is none.
func (c *cordons) decided() *decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest == nil {
		return nil
	}
	d := *c.latest
	return &d
}

// wanted is whether the Node is to be created closed to new pods: as a person
// decided, else as configured.
func (c *cordons) wanted(configured bool) bool {
	if d := c.decided(); d != nil {
		return d.Unschedulable
	}
	return configured
}

// pending tells whether the control plane has yet to be told.
func (c *cordons) pending() bool {
	d := c.decided()
	return d != nil && !d.Delivered
}

// set makes d the latest decision. It is on disk within seconds.
func (c *cordons) set(d *decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(d)
}

// follow puts d, nil for none, in the place of what was decided before, unless a
// person has decided anew since.
func (c *cordons) follow(before, d *decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest != nil && *c.latest == *before {
		c.put(d)
	}
}

// put is set for a caller that holds mu.
func (c *cordons) put(d *decision) {
	c.latest = d
	put, remove := map[string][]byte{}, []string{keyCordon}
	if d != nil {
		value, err := json.Marshal(d)
		if err != nil {
			panic(err) // a struct of plain fields
		}
		put, remove = map[string][]byte{keyCordon: value}, nil
	}
	if err := c.store.Write(put, remove); err != nil {
		c.log.Warn("what was decided of the node's cordon may not survive the agent", "error", err)
	}
}

// Errors of cordon.
var (
	errNotOurs    = errors.New("the node is not hostler's")
	errNoCordoner = errors.New("this control plane cannot cordon nodes")
	errNoNode     = errors.New("the node is not registered there yet")
)

// cordon has the Node closed to new pods, or opened, because a person said so. It
// tells whether that changes anything. An error of the control plane means that
// it is told as soon as it answers; errNotOurs and errNoCordoner, that nothing
// was done.
func (r *reporter) cordon(ctx context.Context, want api.Cordon) (changed bool, err error) {
	if !r.mine() {
		return false, errNotOurs
	}
	cordoner, able := r.client.(controlplane.Cordoner)
	if !able {
		return false, errNoCordoner
	}
	changed = r.unschedulable() != want.Unschedulable
	decided := decision{Cordon: want}
	if before := r.cordons.decided(); before != nil && before.Unschedulable == want.Unschedulable && !changed {
		decided = *before // who said it first, and when, stands
	}
	r.cordons.set(&decided)
	// A round that read the Node before would take the change for somebody else's.
	if err := r.take(ctx, false); err != nil {
		r.changed()
		return changed, err
	}
	defer func() { r.turn <- struct{}{} }()
	if !r.registered {
		r.changed()
		return changed, errNoNode // registering tells it
	}
	ctx, end := r.round(ctx)
	defer end()
	stored, err := cordoner.Cordon(ctx, r.options().Name, want.Unschedulable)
	if err != nil {
		r.changed()
		if errors.Is(context.Cause(ctx), errOvertaken) {
			err = errOvertaken
		}
		return changed, err
	}
	r.cordons.follow(&decided, &decision{Cordon: decided.Cordon, Delivered: true})
	r.adopt(stored)
	return changed, nil
}

// unschedulable is whether the Node takes no new pods, as far as is known here: a
// person's word that is not delivered counts.
func (r *reporter) unschedulable() bool {
	if d := r.cordons.decided(); d != nil && !d.Delivered {
		return d.Unschedulable
	}
	r.mu.Lock()
	known := r.node != nil
	unschedulable := known && r.node.Spec.Unschedulable
	r.mu.Unlock()
	if !known {
		return r.options().Unschedulable
	}
	return unschedulable
}

// settle brings a person's decision and the stored Node together: what was not
// delivered is, and what somebody changed on the control plane since is right.
// The caller has the turn.
func (r *reporter) settle(ctx context.Context, stored *corev1.Node) (*corev1.Node, error) {
	d := r.cordons.decided()
	switch {
	case d == nil || d.Delivered && d.Unschedulable == stored.Spec.Unschedulable:
		return stored, nil
	case d.Delivered:
		r.log.Info("the node's cordon was changed on the control plane", "unschedulable", stored.Spec.Unschedulable)
		r.cordons.follow(d, nil)
		return stored, nil
	}
	if d.Unschedulable != stored.Spec.Unschedulable {
		cordoner, able := r.client.(controlplane.Cordoner)
		if !able { // it was decided under another control plane
			r.cordons.follow(d, nil)
			return stored, nil
		}
		told, err := cordoner.Cordon(ctx, stored.Name, d.Unschedulable)
		if err != nil {
			return stored, err
		}
		stored = told
	}
	delivered := *d
	delivered.Delivered = true
	r.cordons.follow(d, &delivered)
	return stored, nil
}

// Cordon closes the Node to new pods, or opens it, for a person.
func (a *Agent) Cordon(ctx context.Context, unschedulable bool) (api.CordonReport, error) {
	telling, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	want := api.Cordon{Unschedulable: unschedulable, By: api.Caller(ctx), At: time.Now().UTC()}
	changed, err := a.reporter.cordon(telling, want)
	report := api.CordonReport{Node: a.node, Cordon: want, Changed: changed}
	if d := a.reporter.cordons.decided(); d != nil && !changed {
		report.Cordon = d.Cordon
	}
	verb := "cordon"
	if !unschedulable {
		verb = "uncordon"
	}
	switch {
	case errors.Is(err, errNotOurs):
		_, other, _ := a.owners.Mine(owner.Node)
		e := &api.Error{Message: fmt.Sprintf("%s node %s: it is not hostler's: %s", verb, a.node, other.Evidence), Hint: "a host with node.enabled: false has no Node to " + verb}
		if other.Name == owner.Kubelet {
			e.Hint = fmt.Sprintf("the Node is the kubelet's: `kubectl %s %s`", verb, a.node)
		}
		return report, e
	case errors.Is(err, errNoCordoner):
		return report, &api.Error{
			Message: fmt.Sprintf("%s node %s: control plane %s: %v", verb, a.node, a.client.Type(), err),
			Hint:    "set spec.unschedulable of the Node with the control plane's own tools",
		}
	case err != nil:
		report.Pending = true
		report.Message = fmt.Sprintf("kept on this host, and told to the control plane as soon as it answers: %v", err)
	}
	// A control plane that took all the time, or a caller that has gone, is no
	// reason not to have it on disk.
	writing, written := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer written()
	if err := a.onDisk(writing); err != nil {
		report.Message = strings.TrimPrefix(report.Message+"; it may not survive a power cut: "+err.Error(), "; ")
	}
	if changed {
		reason, did := "NodeNotSchedulable", "cordoned"
		if !unschedulable {
			reason, did = "NodeSchedulable", "uncordoned"
		}
		a.log.Info("node "+did, "by", want.By)
		a.recorder.Record(controlplane.NodeReference(a.node), corev1.EventTypeNormal, reason, fmt.Sprintf("%s by %s with `hostler %s`", did, want.By, verb))
	}
	return report, nil
}

// onDisk returns when what was learned is where a power cut does not reach it, or
// ctx ends.
func (a *Agent) onDisk(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- a.state.Flush() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("write the state file: %w", ctx.Err())
	}
}
