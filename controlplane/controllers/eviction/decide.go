// Package eviction removes pods from Nodes that have a NoExecute taint which the pods do not
// tolerate, or tolerate no longer. It never forces a removal, and stops nothing on a host.
//
// Decide is pure: the same facts and time give the same decision, and `hostler fleet plan` prints
// what the controller executes. The rules are those of Kubernetes' taint eviction controller (see
// docs/explanation/node-lifecycle.md for the differences).
package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/store"
)

// Host has the facts of one Node that a decision needs.
type Host struct {
	Name string
	UID  types.UID
	// Gone reports that there is no such Node, although pods are on it.
	Gone bool
	// Unknown reports that the Node's condition Ready is Unknown.
	Unknown bool
	// Taints are the NoExecute taints.
	Taints []Taint
	Pods   []podcache.Pod
}

// Taint is a taint of a Node, and when it starts to count, by the monotonic clock of this server.
type Taint struct {
	corev1.Taint
	Since time.Time
	// Unproven is why the taint evicts nobody at present: its cause may have ended. It is empty for
	// other taints.
	Unproven string
	// number is what the operators Lt and Gt compare; nil if the value is no number. Decide sets it.
	number *int64
}

// outage reports whether controller node-lifecycle sets and removes the taint.
func (t Taint) outage() bool { return outage(t.Taint) }

// before reports whether the taint, whose toleration is over at due, decides instead of an earlier one:
// a taint whose cause is proven does, else the one that is due first.
func (t Taint) before(due time.Time, e Eviction) bool {
	if proven := t.Unproven == ""; proven != (e.unproven == "") {
		return proven
	}
	return due.Before(e.Due)
}

func outage(t corev1.Taint) bool {
	return t.Value == "" && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// Decision is what to do now and later, and why.
type Decision struct {
	Now     []Eviction
	Pending []Eviction // by time
	// Deleting is the number of pods by Node whose deletion was requested, and that still exist.
	Deleting map[string]int
	// Next is when the same facts lead to another decision; zero if they never do.
	Next time.Time
}

// Eviction is a pod to be removed. The pod must still have this UID and ResourceVersion.
type Eviction struct {
	Pod             string // name of the stored object
	UID             types.UID
	ResourceVersion string
	Node            string
	NodeUID         types.UID
	// Taint is the cause; nil if the Node does not exist any more.
	Taint  *corev1.Taint
	Due    time.Time
	Reason string
	// unproven is that of the taint.
	unproven string
}

// Object implements executor.Action.
func (e Eviction) Object() string { return podcache.Object(e.Pod) }

// Version implements executor.Action.
func (e Eviction) Version() string { return e.ResourceVersion }

// Action describes the eviction.
func (e Eviction) Action() string {
	if e.Taint == nil {
		return "remove the pod's object"
	}
	return "evict the pod"
}

// Decide returns the pods to be evicted at a time, and the pending evictions.
func Decide(hosts []Host, now time.Time) Decision {
	d := Decision{Deleting: map[string]int{}}
	waits := false
	for _, h := range hosts {
		h.Taints = numbered(h.Taints)
		for _, pod := range h.Pods {
			if pod.Deleting {
				d.Deleting[h.Name]++
			}
			e, evict := judge(h, pod, now)
			switch {
			case !evict:
			case e.Due.After(now):
				d.Pending = append(d.Pending, e)
			case e.unproven != "":
				e.Reason += "; paused: " + e.unproven
				d.Pending, waits = append(d.Pending, e), true
			default:
				d.Now = append(d.Now, e)
			}
		}
	}
	slices.SortStableFunc(d.Pending, byDue)
	slices.SortStableFunc(d.Now, byDue) // the longest overdue first
	if i := slices.IndexFunc(d.Pending, func(e Eviction) bool { return e.Due.After(now) }); i >= 0 {
		d.Next = d.Pending[i].Due
	}
	if again := now.Add(store.ConfirmInterval); waits && (d.Next.IsZero() || again.Before(d.Next)) {
		d.Next = again
	}
	return d
}

func byDue(a, b Eviction) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Pod, b.Pod)) }

// judge reports whether a pod has to be evicted, when, and why.
func judge(h Host, pod podcache.Pod, now time.Time) (Eviction, bool) {
	e := Eviction{Pod: pod.Name, UID: pod.UID, ResourceVersion: pod.Version, Node: h.Name, NodeUID: h.UID}
	if h.Gone && !(pod.Deleting && pod.Held) {
		e.Due, e.Reason = now, "its Node does not exist any more"
		return e, true
	}
	if pod.Deleting || pod.Ended {
		return e, false
	}
	tolerated := time.Duration(0)
	for i, wait := range tolerate(pod.Tolerations, h.Taints) {
		t := &h.Taints[i]
		due := t.Since.Add(wait)
		if wait != forever && (e.Taint == nil || t.before(due, e)) {
			e.Due, e.Taint, e.unproven, tolerated = due, &t.Taint, t.Unproven, wait
		}
	}
	if e.Taint == nil {
		return e, false
	}
	e.Reason = fmt.Sprintf("Node %s has the taint %s, which the pod does not tolerate", h.Name, e.Taint.ToString())
	if tolerated > 0 {
		e.Reason = fmt.Sprintf("Node %s has the taint %s, which the pod tolerates for %v", h.Name, e.Taint.ToString(), tolerated)
	}
	return e, true
}
