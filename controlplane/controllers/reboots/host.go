package reboots

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
)

// Host is what decisions need of one Node. It does not change.
type Host struct {
	slots.Node
	Request       *controlplane.RebootRequest // nil if there is none
	Slot          *controlplane.RebootSlot    // nil if there is none
	Err           error                       // why the request cannot be read: nothing is known of it then
	Unschedulable bool
	Dead          bool // it gives no sign of life
	// Seen is since when this server sees a request with that ID, StepSince since when at that step, and
	// SlotSince since when Slot is as it is. They are of the monotonic clock.
	Seen, StepSince, SlotSince time.Time

	texts texts
}

// texts are the annotations of a Node about reboots.
type texts struct{ request, slot string }

func textsOf(o metav1.Object) texts {
	annotations := o.GetAnnotations()
	return texts{annotations[controlplane.AnnotationReboot], annotations[controlplane.AnnotationRebootSlot]}
}

// read reads the annotations. A slot that cannot be read is replaced.
func (t texts) read() (request *controlplane.RebootRequest, slot *controlplane.RebootSlot, err error) {
	annotations := map[string]string{}
	for key, text := range map[string]string{controlplane.AnnotationReboot: t.request, controlplane.AnnotationRebootSlot: t.slot} {
		if text != "" {
			annotations[key] = text
		}
	}
	if slot, err = controlplane.RebootSlotOf(annotations); err != nil {
		slot = &controlplane.RebootSlot{}
	}
	if request, err = controlplane.RebootOf(annotations); err == nil && request != nil {
		err = check(request)
	}
	return request, slot, err
}

// check returns an error for a request that no host of this version makes.
func check(r *controlplane.RebootRequest) error {
	if err := slots.CheckID(r.ID); err != nil {
		return err
	}
	if len(r.ID) > slots.LongestRequest {
		return fmt.Errorf("the ID has more than %d bytes", slots.LongestRequest)
	}
	if r.Step != controlplane.RebootWanted && r.Step != controlplane.RebootDone && !r.Step.NeedsSlot() {
		return fmt.Errorf("%q is no step of a reboot", r.Step)
	}
	return nil
}

// taker returns a function that takes in Nodes for a store.Table.
func taker(zoneLabels []string) func(before Host, o store.Object, listing bool) (Host, bool) {
	return func(before Host, o store.Object, listing bool) (Host, bool) {
		node := o.(*corev1.Node)
		now := Host{Node: nodeOf(node, zoneLabels), Unschedulable: node.Spec.Unschedulable, Dead: ready(node) == corev1.ConditionUnknown, texts: textsOf(node)}
		same := before.texts == now.texts && before.UID == now.UID
		if same {
			now.Request, now.Slot, now.Err = before.Request, before.Slot, before.Err
			now.Seen, now.StepSince, now.SlotSince = before.Seen, before.StepSince, before.SlotSince
		} else {
			now.Request, now.Slot, now.Err = now.texts.read()
			now.clock(before, listing)
		}
		return now, !same || now.Node != before.Node || now.Unschedulable != before.Unschedulable || now.Dead != before.Dead
	}
}

// mostAge is the oldest start of a step, by the clock of the host. A clock that is wrong by more fails
// no reboot.
const mostAge = 24 * time.Hour

// clock notes since when the Node is as it is. Clocks differ and are set, so what is seen to appear counts from
// then, and what was there when Nodes were listed from its own time, as far as that has passed.
func (h *Host) clock(before Host, listing bool) {
	now := time.Now()
	h.SlotSince = now
	if h.texts.slot == before.texts.slot && h.UID == before.UID {
		h.SlotSince = before.SlotSince
	}
	r, was := h.Request, before.Request
	if r == nil {
		return
	}
	h.Seen, h.StepSince = now, now
	if age := now.Sub(r.Since.Time); listing && age > 0 && age < mostAge {
		h.StepSince = now.Add(-age)
	}
	if was != nil && was.ID == r.ID && h.UID == before.UID {
		h.Seen = before.Seen
		if was.Step == r.Step && was.Since.Equal(&r.Since) {
			h.StepSince = before.StepSince
		}
	}
}

// nodeOf is what decisions about slots need of a Node.
func nodeOf(node *corev1.Node, zoneLabels []string) slots.Node {
	n := slots.Node{Name: node.Name, UID: node.UID, BootID: node.Status.NodeInfo.BootID, Zone: lifecycle.ZoneOf(node.Labels, zoneLabels), Group: controlplane.DefaultRebootGroup}
	if group := node.Labels[controlplane.LabelRebootGroup]; group != "" {
		n.Group = group
	}
	_, n.Excluded = node.Labels[lifecycle.LabelExclude]
	n.Ready = ready(node) == corev1.ConditionTrue
	return n
}

// ready is the status of a Node's condition Ready; empty if there is none.
func ready(node *corev1.Node) corev1.ConditionStatus {
	if c := controlplane.ConditionOf(node, corev1.NodeReady); c != nil {
		return c.Status
	}
	return ""
}

// asks reports whether the host has a request that needs a slot, or a place among those that wait.
func (h Host) asks() bool {
	return h.Err == nil && h.Request != nil && (h.Request.Step == controlplane.RebootWanted || h.Request.Step == controlplane.RebootWaiting)
}

// holds reports whether a slot is that of the host's request.
func (h Host) holds(o *slots.Holder) bool {
	return o != nil && h.Request != nil && o.By == slots.Agent && o.UID == h.UID && o.Client.Request == h.Request.ID
}

// done reports whether the host needs a slot of its no more, and knows that it has none.
func (h Host) done(o slots.Holder) bool {
	if h.Err != nil || h.holds(&o) && h.Request.Step.NeedsSlot() {
		return false
	}
	return h.Slot == nil || h.Slot.Granted == nil && !h.Slot.Cordoned
}
