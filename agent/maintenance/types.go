package maintenance

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// DrainRequest requests a drain, or its plan.
type DrainRequest struct {
	All bool `json:"all"` // critical pods, too
}

// DrainPlan is the answer of `hostler drain --dry-run -o json`.
type DrainPlan struct {
	plan.Plan
	Node     string            `json:"node"`
	Critical []plan.PlannedPod `json:"spared"` // critical pods, which keep running
	// Bound is the longest time that stopping the other pods takes.
	Bound metav1.Duration `json:"bound"`
	// Refusal says why a drain would be rejected now; empty if it would not be.
	Refusal string `json:"refusal,omitempty"`
}

// DrainStep is one finished pod of a drain. If Waiting is set, it has no pod, and says what the
// drain waits for after the pods.
type DrainStep struct {
	journal.PodRecord
	Waiting string `json:"waiting,omitempty"`
	Done    int    `json:"done"` // of Total
	Total   int    `json:"total"`
}

// DrainReport is the answer of `hostler drain -o json`.
type DrainReport struct {
	Node string `json:"node"`
	// Unschedulable reports whether the drain cordoned the Node, which stays cordoned.
	Unschedulable bool `json:"unschedulable"`
	// Message is a problem of the drain, such as a cordon that the control plane has not stored
	// yet.
	Message string `json:"message,omitempty"`
	journal.Record
}

// Cordon is the last request of a user to cordon or uncordon the Node.
type Cordon struct {
	Unschedulable bool      `json:"unschedulable"`
	By            string    `json:"by"`
	At            time.Time `json:"at"`
	Pending       bool      `json:"pending,omitempty"` // the control plane has not stored it yet
}

// CordonReport is the answer of `hostler cordon -o json` and `uncordon`.
type CordonReport struct {
	Node    string `json:"node"`
	Changed bool   `json:"changed"` // false if the Node already was in this state
	Cordon
	Message string `json:"message,omitempty"` // why the control plane has not stored it yet
}

// LeaveReport is the answer of `hostler leave -o json`, with and without --undo.
type LeaveReport struct {
	Node         string `json:"node"`
	ControlPlane string `json:"controlPlane"` // its type
	By           string `json:"by"`
	Changed      bool   `json:"changed"`           // false if there was nothing to undo
	Message      string `json:"message,omitempty"` // why the change may be lost
}

// PodsToStop counts the pods that a drain stops. Critical pods count only if the drain is of all
// pods, or has stopped them.
func PodsToStop(r journal.Record) int {
	n := 0
	for _, p := range r.Pods {
		if p.Outcome != journal.Skipped && (!r.Trigger.SkipsCritical() || p.Priority < plan.CriticalPriority || !p.StartedAt.IsZero()) {
			n++
		}
	}
	return n
}
