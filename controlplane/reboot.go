package controlplane

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations by which a host and the servers agree on a reboot.
const (
	// AnnotationReboot contains a RebootRequest as JSON. Only the host writes it, on its own Node.
	AnnotationReboot = "hostler.io/reboot"
	// AnnotationRebootSlot contains a RebootSlot as JSON. Only servers write it.
	AnnotationRebootSlot = "hostler.io/reboot-slot"
	// AnnotationRebooting is on the Lease of a host that has its turn, or does not know yet. Each renewal says it
	// again, also to a store that went back to an earlier state.
	AnnotationRebooting = "hostler.io/rebooting"
)

// LabelRebootGroup names the group of hosts that a Node is in.
const LabelRebootGroup = "hostler.io/reboot-group"

// DefaultRebootGroup is the group of Nodes without that label.
const DefaultRebootGroup = "default"

// RebootStep is the progress of a reboot.
type RebootStep string

// The steps. A host that fails or gives up returns to RebootWanted.
const (
	RebootWanted    RebootStep = "Wanted"    // the host does not request a slot yet
	RebootWaiting   RebootStep = "Waiting"   // it requests a slot
	RebootGranted   RebootStep = "Granted"   // it has read that it holds one
	RebootDraining  RebootStep = "Draining"  // its pods are being stopped or moved
	RebootRebooting RebootStep = "Rebooting" // the reboot was requested
	RebootVerifying RebootStep = "Verifying" // the host has booted again, and checks itself
	RebootDone      RebootStep = "Done"      // no reboot is wanted any more
)

// RebootSteps returns all steps, in their order.
func RebootSteps() []RebootStep {
	return []RebootStep{RebootWanted, RebootWaiting, RebootGranted, RebootDraining, RebootRebooting, RebootVerifying, RebootDone}
}

// Running reports whether the host has its turn.
func (s RebootStep) Running() bool {
	return s == RebootGranted || s == RebootDraining || s == RebootRebooting || s == RebootVerifying
}

// NeedsSlot reports whether the host keeps its slot at this step.
func (s RebootStep) NeedsSlot() bool {
	switch s {
	case RebootWaiting, RebootGranted, RebootDraining, RebootRebooting, RebootVerifying:
		return true
	}
	return false
}

// RebootRequest is the reboot that a host wants, is doing, or did last.
type RebootRequest struct {
	ID     string      `json:"id"` // each slot is granted to one request
	Step   RebootStep  `json:"step"`
	Since  metav1.Time `json:"since"`  // when the step began
	Wanted metav1.Time `json:"wanted"` // when the reboot was first wanted
	Reason string      `json:"reason"`
	// Message says what the host waits for, or what failed.
	Message string `json:"message,omitempty"`
	// EmptiedByServer requests that a server evicts the pods before the reboot, because a kubelet runs
	// them.
	EmptiedByServer bool `json:"emptiedByServer,omitempty"`
}

// RebootSlot is the servers' answer to a request.
type RebootSlot struct {
	ID string `json:"id"` // of the request
	// Slot is GROUP/NUMBER of the slot that the answer is about, as in the record of its group. Without
	// Granted, that slot has ended, and is never granted again. It is empty while the host waits.
	Slot string `json:"slot,omitempty"`
	// Granted is when the host received the slot; nil if it does not have one.
	Granted *metav1.Time `json:"granted,omitempty"`
	// Message says why the host waits, or which pods are still on its Node. Why is the reason in one
	// word, and changes less often.
	Message string `json:"message,omitempty"`
	Why     string `json:"why,omitempty"`
	// Emptied reports that no pod has to leave the Node any more.
	Emptied bool `json:"emptied,omitempty"`
	// Failed reports that the server stopped trying to empty the Node. Message says why.
	Failed bool `json:"failed,omitempty"`
	// Cordoned reports that the server has cordoned the Node, and will uncordon it. It is false if the Node
	// was cordoned before.
	Cordoned bool `json:"cordoned,omitempty"`
}

// AnnotationCordoned is on a Node that its host has cordoned for a reboot. It is written together with the cordon, so
// that the host finds its own cordon again in a store that went back to an earlier state.
const AnnotationCordoned = "hostler.io/cordoned"

// cordonedForReboot is the value of AnnotationCordoned.
const cordonedForReboot = "reboot"

// SetCordon sets whether a Node is unschedulable, and whether its host has cordoned it for a reboot.
func SetCordon(node *corev1.Node, unschedulable, own bool) {
	node.Spec.Unschedulable = unschedulable
	delete(node.Annotations, AnnotationCordoned)
	if unschedulable && own {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, AnnotationCordoned, cordonedForReboot)
	}
}

// MarkedInVain reports whether a Node has the mark of its host's cordon without a cordon: another client has uncordoned it.
func MarkedInVain(node *corev1.Node) bool {
	_, marked := node.Annotations[AnnotationCordoned]
	return marked && !node.Spec.Unschedulable
}

// OwnCordon reports whether the host of a Node has cordoned it for a reboot.
func OwnCordon(node *corev1.Node) bool {
	return node.Spec.Unschedulable && node.Annotations[AnnotationCordoned] == cordonedForReboot
}

// RebootOf reads the request in the annotations of a Node; nil if there is none.
func RebootOf(annotations map[string]string) (*RebootRequest, error) {
	return inAnnotation[RebootRequest](annotations, AnnotationReboot)
}

// RebootSlotOf reads the answer in the annotations of a Node; nil if there is none.
func RebootSlotOf(annotations map[string]string) (*RebootSlot, error) {
	return inAnnotation[RebootSlot](annotations, AnnotationRebootSlot)
}

func inAnnotation[T any](annotations map[string]string, key string) (*T, error) {
	text, found := annotations[key]
	if !found {
		return nil, nil
	}
	value := new(T)
	if err := json.Unmarshal([]byte(text), value); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", key, err)
	}
	return value, nil
}
