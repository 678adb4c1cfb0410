package server

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/clones"
	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/controllers/heartbeats"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/store"
)

// report is the state of one controller, in a common form.
type report struct {
	at, oldestDue time.Time // zero for never
	watches       string    // input of its decisions
	next          time.Time // when it decides again without a change; zero if unknown
	waits         string    // why more may be due; empty if all is known
	paused        bool      // there is no decision, and the last one does not count
	due, pending  int
	lag           time.Duration    // of the watch
	failing       map[string]error // objects that cannot be written, by KIND/NAME
	unreadable    map[string]error // objects that cannot be read, by KIND/NAME
	problems      []answer.Problem // other objects that are not changed
	writes        executor.Writes
	actions       func() []answer.Action
	settled       func() []answer.Settled // nil for none
}

func reportOf(r executor.Report) report {
	return report{at: r.At, oldestDue: r.OldestDue, waits: r.Waits, paused: r.Paused != "", failing: r.Failing, writes: r.Writes, lag: r.WatchLag}
}

// reportOfNodes returns the report of the controller node-lifecycle. pods are pods that cannot be
// read. evictions says what follows on Nodes with a taint. On Kubernetes, hints name kubectl
// instead of `hostler fleet delete`.
func reportOfNodes(l lifecycle.Report, evictions *eviction.Report, pods map[string]error, onKubernetes bool) report {
	r := reportOf(l.Report)
	r.waits = cmp.Or(r.waits, l.Marking.Waits)
	if l.Marking.Paused != "" {
		l.Marks = nil // of the last decision
	}
	r.due, r.pending = len(l.Decision.Now)+len(l.Marks), len(l.Decision.Pending)
	r.writes = r.writes.Add(l.Marking.Writes)
	r.lag = max(r.lag, l.Marking.WatchLag)
	maps.Copy(r.failing, l.Marking.Failing) // each Report has its own map
	if at := l.Marking.OldestDue; !at.IsZero() && (r.oldestDue.IsZero() || at.Before(r.oldestDue)) {
		r.oldestDue = at
	}
	nodes := 0
	for _, zone := range l.Decision.Zones {
		nodes += zone.Nodes
	}
	r.watches, r.next = fmt.Sprintf("%d Nodes and their Leases", nodes), l.Decision.Next
	if nodes == 1 {
		r.watches = "1 Node and its Lease"
	}
	if !onKubernetes { // the server does not see when the Lease was renewed
		r.watches += "; `hostler nodes` shows when each was renewed"
	}
	r.unreadable = pods
	maps.Copy(r.unreadable, l.Unreadable)
	for _, i := range l.Decision.Ignored {
		r.problems = append(r.problems, answer.Problem{Object: clean(store.Nodes.Key(i.Node)), Message: clean(i.Message), Hint: "remove it yourself if nobody needs it"})
	}
	r.actions = func() []answer.Action { return actionsOnNodes(l) }
	r.settled = func() []answer.Settled { return settledNodes(l.Decision.Settled, evictions, onKubernetes) }
	return r
}

// settledNodes returns the Nodes that this controller has nothing left to do for, with the next
// step for their pods.
func settledNodes(nodes []lifecycle.Settled, evictions *eviction.Report, onKubernetes bool) []answer.Settled {
	list := make([]answer.Settled, 0, len(nodes))
	for _, n := range nodes {
		s := answer.Settled{Node: clean(n.Node), Ready: string(n.Ready), Taints: []string{}, Next: "its pods are not evicted before it has a NoExecute taint"}
		for _, t := range n.Taints {
			s.Taints = append(s.Taints, clean(strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect)))
			if t.Effect != corev1.TaintEffectNoExecute {
				continue
			}
			s.Next = nextOnPods(n.Node, evictions, onKubernetes)
			if n.Ready == corev1.ConditionUnknown {
				command := "hostler fleet delete nodes/" + clean(n.Node) + " --dry-run"
				if onKubernetes {
					command = "kubectl delete node " + clean(n.Node)
				}
				s.Next += "; if the host does not return, delete its Node: `" + command + "`"
			}
			if t.TimeAdded != nil && s.NoExecuteSince == nil {
				since := controlplane.JSONTime(t.TimeAdded.Time)
				s.NoExecuteSince = &since
			}
		}
		list = append(list, s)
	}
	return list
}

// nextOnPods describes the next step for the pods on a Node with a NoExecute taint. evictions is nil if the controller
// does not run here.
func nextOnPods(node string, evictions *eviction.Report, onKubernetes bool) string {
	if evictions == nil {
		return "this server does not evict its pods: controller eviction is off"
	}
	if evictions.Waits != "" { // unknown on this server
		return "its pods are evicted when their toleration is over"
	}
	left := 0
	for _, list := range [][]eviction.Eviction{evictions.Decision.Now, evictions.Decision.Pending} {
		for _, e := range list {
			if e.Node == node {
				left++
			}
		}
	}
	deleting := evictions.Decision.Deleting[node]
	switch {
	case left == 1:
		return "1 pod on it is still to be evicted, see below"
	case left > 1:
		return fmt.Sprintf("%d pods on it are still to be evicted, see below", left)
	case deleting > 0:
		return fmt.Sprintf("pods whose deletion is requested: %d; an object stays until its pod ends or the Node is deleted", deleting)
	case onKubernetes:
		return "no pod on it is left to evict"
	}
	return "no pod on it is left to evict (only hosts with `status.pods: true` publish their pods)"
}

func actionsOnNodes(l lifecycle.Report) []answer.Action {
	actions := []answer.Action{}
	at := l.At.UTC()
	for _, c := range l.Decision.Now {
		for _, step := range c.Steps {
			actions = append(actions, answer.Action{Object: clean(c.Object()), Zone: clean(c.Zone), Action: clean(step.Action), Reason: clean(step.Reason), Due: &at})
		}
	}
	for _, m := range l.Marks {
		actions = append(actions, answer.Action{Object: clean(m.Object()), Action: "mark the pod as not ready", Reason: clean(m.Reason), Due: &at})
	}
	for _, p := range l.Decision.Pending {
		a := answer.Action{
			Object: clean(store.Nodes.Key(p.Node)), Zone: clean(p.Zone), Reason: clean(p.Reason),
			Action: fmt.Sprintf("add taint %s:%s", p.Taint, corev1.TaintEffectNoExecute),
		}
		if !p.Due.IsZero() {
			due := p.Due.UTC()
			a.Due = &due
		}
		actions = append(actions, a)
	}
	return actions
}

// reportOfEvictions returns the report of the controller eviction.
func reportOfEvictions(e eviction.Report) report {
	r := reportOf(e.Report)
	r.due, r.pending, r.watches = len(e.Decision.Now), len(e.Decision.Pending), "pods and the NoExecute taints of Nodes"
	r.actions = func() []answer.Action {
		actions := []answer.Action{}
		for _, evictions := range [][]eviction.Eviction{e.Decision.Now, e.Decision.Pending} {
			for _, v := range evictions {
				due := v.Due.UTC()
				actions = append(actions, answer.Action{Object: clean(v.Object()), Action: v.Action(), Reason: clean(v.Reason), Due: &due})
			}
		}
		return actions
	}
	return r
}

// reportOfGarbage returns the report of the controller garbage-collector.
func reportOfGarbage(g garbagecollector.Report) report {
	r := reportOf(g.Report)
	r.watches = fmt.Sprintf("%d objects and their owners", g.Objects)
	var due []garbagecollector.Step
	for _, fact := range g.Facts {
		if fact.Step != nil {
			due = append(due, *fact.Step)
		}
	}
	r.due, r.pending = len(due), len(g.Facts)-len(due)
	r.unreadable, r.problems = g.Unreadable, undecided(g)
	r.actions = actionsAt(g.At, due, func(s garbagecollector.Step) answer.Action {
		return answer.Action{Object: clean(s.Object()), Action: clean(s.Action()), Reason: clean(s.Reason)}
	})
	return r
}

// reportOfClones returns the report of the controller clones.
func reportOfClones(c clones.Report) report {
	r := reportOf(c.Report)
	r.due, r.watches = len(c.Decision.Now), "the machine IDs of Nodes"
	for _, group := range c.Decision.Groups {
		r.problems = append(r.problems, answer.Problem{Object: clean(store.Nodes.Key(group[0])), Message: clean(group.Message()), Hint: "run on the copy: `" + controlplane.Clone{}.Fix() + "`"})
	}
	r.actions = actionsAt(c.At, c.Decision.Now, func(change clones.Change) answer.Action {
		return answer.Action{Object: clean(change.Object()), Action: clean(change.Action()), Reason: change.Reason()}
	})
	return r
}

// reportOfHeartbeats returns the report of the controller heartbeats.
func reportOfHeartbeats(h heartbeats.Report) report {
	r := reportOf(h.Report)
	r.due, r.watches = len(h.Decision.Now), "the number of Nodes and the setting lease-duration"
	r.actions = actionsAt(h.At, h.Decision.Now, func(change heartbeats.Change) answer.Action {
		return answer.Action{Object: change.Object(), Action: change.Action(), Reason: clean(change.Reason)}
	})
	return r
}

// actionsAt returns the actions of changes that are due at one time.
func actionsAt[C any](at time.Time, changes []C, action func(C) answer.Action) func() []answer.Action {
	return func() []answer.Action {
		due, actions := at.UTC(), []answer.Action{}
		for _, change := range changes {
			a := action(change)
			a.Due = &due
			actions = append(actions, a)
		}
		return actions
	}
}

// heartbeatsOf returns the duration of Leases with its reason; nil if it is not known yet.
func heartbeatsOf(h heartbeats.Report) *answer.Heartbeats {
	d := h.Decision
	if d.Reason == "" {
		return nil
	}
	return &answer.Heartbeats{
		Hosts: d.Hosts, PerSecond: d.PerSecond, MaxPerSecond: d.MaxPerSecond, LeaseSeconds: d.Lease.Seconds(),
		Setting: clean(d.Setting.Value), Reason: clean(d.Reason),
	}
}
