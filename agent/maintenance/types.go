package maintenance

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// DrainRequest asks for a drain, or for its plan.
type DrainRequest struct {
	All bool `json:"all"` // critical pods, too
}

// DrainPlan is the answer of `hostler drain --dry-run -o json`.
type DrainPlan struct {
	plan.Plan
	Node   string            `json:"node"`
	Spared []plan.PlannedPod `json:"spared"` // critical ones, which stay
	// Bound is how long the pods that are not spared take at the most to stop.
	Bound metav1.Duration `json:"bound"`
	// Refusal says why a drain would be refused now; empty if it would not.
	Refusal string `json:"refusal,omitempty"`
}

// DrainStep is one pod that a drain is done with, or, with Waiting, what the drain waits for after the
// pods. Then it has no pod.
type DrainStep struct {
	journal.PodRecord
	Waiting string `json:"waiting,omitempty"`
	Done    int    `json:"done"` // of Total
	Total   int    `json:"total"`
}

// DrainReport is the answer of `hostler drain -o json`.
type DrainReport struct {
	Node string `json:"node"`
	// Unschedulable tells that the Node was cordoned before, and stays so.
	Unschedulable bool `json:"unschedulable"`
	// Message says what is not as it should be, such as a control plane that
	// could not be told of the cordon yet.
	Message string `json:"message,omitempty"`
	journal.Record
}

// Cordon is what a person decided of whether the Node takes new pods.
type Cordon struct {
	Unschedulable bool      `json:"unschedulable"`
	By            string    `json:"by"`
	At            time.Time `json:"at"`
	Pending       bool      `json:"pending,omitempty"` // the control plane has yet to be told
}

// CordonReport is the answer of `hostler cordon -o json` and `uncordon`.
type CordonReport struct {
	Node    string `json:"node"`
	Changed bool   `json:"changed"` // false if the Node was so already
	Cordon
	Message string `json:"message,omitempty"` // why the control plane does not know yet
}

// LeaveReport is the answer of `hostler leave -o json`, with and without --undo.
type LeaveReport struct {
	Node         string `json:"node"`
	ControlPlane string `json:"controlPlane"` // its type
	By           string `json:"by"`
	Changed      bool   `json:"changed"`           // false if there was nothing to undo
	Message      string `json:"message,omitempty"` // why it may not last
}

// Unspared counts the pods that a drain does not leave alone: a person's spares critical
// ones unless it is of all.
func Unspared(r journal.Record) int {
	n := 0
	for _, p := range r.Pods {
		if p.Outcome != journal.Skipped && (!r.Trigger.SparesCritical() || p.Priority < plan.CriticalPriority) {
			n++
		}
	}
	return n
}
