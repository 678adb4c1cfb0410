package reboots

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/sanitize"
)

// Host has the facts of one Node. It is immutable.
type Host struct {
	slots.Node
	Request       *controlplane.RebootRequest // nil if there is none
	Slot          *controlplane.RebootSlot    // nil if there is none
	Err           error                       // error of the request annotation; Request is not usable then
	Unschedulable bool
	Dead          bool // the Node's condition Ready is Unknown
	// Seen is when this server first saw the request's ID, StepSince its step, and SlotSince the current Slot.
	// All are times of the monotonic clock.
	Seen, StepSince, SlotSince time.Time
	// BootSince is when this server first saw the boot of the host, by the monotonic clock.
	BootSince time.Time

	texts texts
}

// Unread returns what stays known of a host whose Node cannot be read any more, for store.Table. It counts as not ready
// in its group, and requests nothing. Without a UID, the Node was never read.
func (h Host) Unread(name string) Host {
	node := h.Node
	node.Name, node.Ready = name, false
	return Host{Node: node, BootSince: h.BootSince}
}

// Bounds of what a host writes on its Node, in bytes. A host on etcd may write anything there.
const (
	mostAnnotation = 16 << 10
	mostGroup      = 63
	mostBootID     = 64 // bytes
)

// tooLong begins the text of an annotation that is too long, before its hash.
const tooLong = "\x00"

// texts has the annotations of a Node about reboots.
type texts struct{ request, slot string }

func textsOf(o metav1.Object) texts {
	annotations := o.GetAnnotations()
	return texts{within(annotations[controlplane.AnnotationReboot]), within(annotations[controlplane.AnnotationRebootSlot])}
}

// within returns a text, or its hash if it is too long.
func within(text string) string {
	if len(text) <= mostAnnotation {
		return text
	}
	return fmt.Sprintf("%s%x", tooLong, sha256.Sum256([]byte(text)))
}

// read parses the annotations. It returns an empty slot for an invalid one, so that the server replaces it.
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
	if strings.HasPrefix(t.request, tooLong) {
		return nil, slot, fmt.Errorf("annotation %s has more than %d bytes", controlplane.AnnotationReboot, mostAnnotation)
	}
	if request, err = controlplane.RebootOf(annotations); err == nil && request != nil {
		err = check(request)
		request.Reason, request.Message = slots.Shorten(request.Reason), sanitize.Text(request.Message, mostMessage)
	}
	return request, slot, err
}

// check returns an error for a request that no agent of this version writes.
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

// taker returns the function that converts Nodes to Hosts for a store.Table.
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
		if now.BootSince = before.BootSince; before.UID != now.UID || before.BootID != now.BootID {
			now.BootSince = time.Now()
		}
		return now, !same || now.Node != before.Node || now.Unschedulable != before.Unschedulable || now.Dead != before.Dead
	}
}

// announceTime is how long a host may take after a boot, or after a restore of the store, to write the step of its reboot
// on the Node. The Node may be Ready before.
const announceTime = 30 * time.Second

// mostAge bounds the age of a step by the clock of its host. An older step means a wrong clock, which must not
// fail a reboot: the age is ignored.
const mostAge = 24 * time.Hour

// clock records when request, step and slot of the Node appeared. Clocks differ between hosts, so a change
// counts from the moment when this server sees it. A step that is already in a list of Nodes counts from its own
// start, unless that is in the future.
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

// nodeOf converts a Node to the format of package slots.
func nodeOf(node *corev1.Node, zoneLabels []string) slots.Node {
	n := slots.Node{
		Name: node.Name, UID: node.UID, BootID: sanitize.Text(node.Status.NodeInfo.BootID, mostBootID),
		Zone: lifecycle.ZoneOf(node.Labels, zoneLabels), Group: controlplane.DefaultRebootGroup,
	}
	if group := node.Labels[controlplane.LabelRebootGroup]; group != "" {
		n.Group = sanitize.Text(group, mostGroup)
	}
	_, n.Excluded = node.Labels[lifecycle.LabelExclude]
	n.Ready = ready(node) == corev1.ConditionTrue
	return n
}

// ready returns the status of a Node's condition Ready; empty if there is none.
func ready(node *corev1.Node) corev1.ConditionStatus {
	if c := controlplane.ConditionOf(node, corev1.NodeReady); c != nil {
		return c.Status
	}
	return ""
}

// reboots reports whether the host is amid a reboot, and no person has released its slot.
func (h Host) reboots() bool {
	return h.Err == nil && h.Request != nil && mayBeCordoned(h.Request.Step) && !h.released()
}

// asks reports whether the host has a request that waits for a slot, or keeps its place in the queue.
func (h Host) asks() bool {
	return h.Err == nil && h.Request != nil && (h.Request.Step == controlplane.RebootWanted || h.Request.Step == controlplane.RebootWaiting)
}

// asksFor reports whether a holder is the agent of the host, for its current request.
func (h Host) asksFor(o *slots.Holder) bool {
	return o.Type == slots.Agent && h.holds(&holding{Holder: *o})
}
