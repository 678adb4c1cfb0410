package fleetsim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/bounded"
)

// hostile is a host that writes anything on its own Node and Lease.
type hostile struct {
	h       *host
	process *process
	store   memory.Objects
	node    []byte // before it became hostile
}

// becomesHostile replaces the agent of a host.
func (h *host) becomesHostile() {
	h.dies()
	h.w.truth.forced(h.name)
	h.w.truth.suspect(h.name, true)
	h.process = newProcess(h.w.carrier, h.name)
	h.w.truth.lives(h.name, true)
	node := h.w.store.Raw("nodes/" + h.name)
	if node == nil {
		node = []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + h.name + `"}}`)
	}
	x := &hostile{h, h.process, h.w.store.Over(h.process).Objects(), node}
	go x.run(h.process.ctx)
}

// isRepaired makes a person install the host again, and delete its Node.
func (h *host) isRepaired() {
	h.dies()
	h.w.truth.suspect(h.name, false)
	h.w.truth.forced(h.name)
	h.w.store.Remove(store.Nodes, h.name)
	h.w.store.Remove(store.Leases, h.name)
	if h.w.active[fmt.Sprint(hostDies, "/", h.name, "/")] == 0 {
		h.bootsAgain()
	}
}

// suspect records that a host is hostile, or not any more.
func (t *truth) suspect(name string, hostile bool) {
	f := t.of(name)
	f.hostile, f.repaired, f.renewals = hostile, !hostile, nil
	delete(t.cordons, name)
}

// run writes until ctx ends.
func (x *hostile) run(ctx context.Context) {
	w := x.h.w
	for ctx.Err() == nil {
		r := w.plan.draw("hostile", x.h.name, time.Since(w.start))
		_ = bounded.Sleep(ctx, time.Duration(100+r.IntN(4000))*time.Millisecond)
		if r.IntN(3) == 0 {
			x.put(ctx, objects.Lease, x.lease(r), time.Duration(r.IntN(2)*(1+r.IntN(7200)))*time.Second)
			continue
		}
		x.put(ctx, objects.Node, x.edited(r), 0)
	}
}

// put writes a value over what is stored; it deletes the object if there is no value.
func (x *hostile) put(ctx context.Context, kind objects.Kind, value []byte, ttl time.Duration) {
	key := objects.Key{Kind: kind, Node: x.h.name}
	stored, _ := x.store.Get(ctx, key) // without one, it is created
	if len(value) == 0 {
		_ = x.store.Delete(ctx, key, objects.None)
		return
	}
	_, _ = x.store.Put(ctx, key, objects.Put{Value: value, Instead: stored.Version, TTL: ttl})
}

// lease returns a Lease; nothing to delete it.
func (x *hostile) lease(r *rand.Rand) []byte {
	at := func() *metav1.MicroTime { return &metav1.MicroTime{Time: anyTime(r)} }
	l := coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, ObjectMeta: metav1.ObjectMeta{Name: x.h.name, Namespace: corev1.NamespaceNodeLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(anyText(r)), LeaseDurationSeconds: new([]int32{1, 40, 3600, 1 << 30, 1<<31 - 1}[r.IntN(5)]), RenewTime: at(), AcquireTime: at(),
		},
	}
	if x.h.w.plan.Engine == etcd {
		l.Spec.LeaseDurationSeconds = []*int32{nil, new(int32(0)), new(int32(-5)), l.Spec.LeaseDurationSeconds}[r.IntN(4)]
	}
	if r.IntN(8) == 0 {
		return nil
	}
	if x.h.w.plan.Engine == etcd && r.IntN(8) == 0 {
		return unreadable(r)
	}
	return encoded(l)
}

// edited returns the Node with some changes.
func (x *hostile) edited(r *rand.Rand) []byte {
	var n corev1.Node
	if json.Unmarshal(x.node, &n) != nil {
		return x.node
	}
	edits := hostileEdits()
	if x.h.w.plan.Engine == etcd {
		edits = append(edits, hostileEditsOfEtcd(x.h.w)...)
		if r.IntN(12) == 0 {
			return unreadable(r)
		}
	}
	for range 1 + r.IntN(3) {
		edits[r.IntN(len(edits))](r, &n)
	}
	return encoded(n)
}

// unreadable returns a value that is no object; or an empty one.
func unreadable(r *rand.Rand) []byte {
	return []byte([]string{"", "{", "null", `"text"`, "[" + strings.Repeat("1,", 300000) + "1]", strings.Repeat(`{"a":`, 20000), `{"metadata":null}`}[r.IntN(7)])
}

func encoded(o any) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return text
}

type hostileEdit func(r *rand.Rand, n *corev1.Node)

// hostileEdits returns what a host may write on all stores.
func hostileEdits() []hostileEdit {
	note := func(n *corev1.Node, key, value string) {
		n.Annotations = maps.Clone(n.Annotations)
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[key] = value
	}
	label := func(n *corev1.Node, key, value string) {
		n.Labels = maps.Clone(n.Labels)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[key] = value
	}
	request := func(r *rand.Rand, n *corev1.Node) {
		note(n, controlplane.AnnotationReboot, string(encoded(controlplane.RebootRequest{
			ID: fmt.Sprint("hostile-", r.IntN(5)), Step: []controlplane.RebootStep{"Wanted", "Waiting", "Granted", "Draining", "Rebooting", "Verifying", "Done", "?"}[r.IntN(8)],
			Since: metav1.Time{Time: anyTime(r)}, Wanted: metav1.Time{Time: anyTime(r)}, Reason: anyText(r), Message: anyText(r), EmptiedByServer: r.IntN(2) == 0,
		})))
	}
	return []hostileEdit{
		request, request, request,
		func(r *rand.Rand, n *corev1.Node) { note(n, controlplane.AnnotationReboot, anyText(r)) },
		func(r *rand.Rand, n *corev1.Node) { note(n, controlplane.AnnotationRebootSlot, anyText(r)) },
		func(r *rand.Rand, n *corev1.Node) {
			slot := controlplane.RebootSlot{
				ID: fmt.Sprint("hostile-", r.IntN(5)), Slot: fmt.Sprint("default/", r.IntN(9)), Message: anyText(r), Why: []string{"", "lost", "over", "turn"}[r.IntN(4)],
				Emptied: r.IntN(2) == 0, Cordoned: r.IntN(2) == 0,
			}
			if r.IntN(2) == 0 {
				slot.Granted = &metav1.Time{Time: anyTime(r)}
			}
			note(n, controlplane.AnnotationRebootSlot, string(encoded(slot)))
		},
		func(_ *rand.Rand, n *corev1.Node) { n.Annotations = nil },
		func(r *rand.Rand, n *corev1.Node) { note(n, lifecycle.AnnotationTainted, anyText(r)) },
		func(r *rand.Rand, n *corev1.Node) {
			note(n, lifecycle.AnnotationTainted, anyTime(r).Format(time.RFC3339))
		},
		func(r *rand.Rand, n *corev1.Node) {
			label(n, corev1.LabelTopologyZone, []string{"a", "b", "c"}[r.IntN(3)])
		},
		func(r *rand.Rand, n *corev1.Node) {
			label(n, controlplane.LabelRebootGroup, []string{"default", "none"}[r.IntN(2)])
		},
		func(_ *rand.Rand, n *corev1.Node) { label(n, lifecycle.LabelExclude, "") },
		func(r *rand.Rand, n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable },
		func(r *rand.Rand, n *corev1.Node) { n.Status.NodeInfo.BootID = anyText(r) },
		func(r *rand.Rand, n *corev1.Node) {
			n.Status.Conditions = slices.Clone(n.Status.Conditions)
			for i := range n.Status.Conditions {
				c := &n.Status.Conditions[i]
				c.Status, c.Message = []corev1.ConditionStatus{"True", "False", "Unknown", "?"}[r.IntN(4)], anyText(r)
				c.LastTransitionTime, c.LastHeartbeatTime = metav1.Time{Time: anyTime(r)}, metav1.Time{Time: anyTime(r)}
			}
		},
		func(r *rand.Rand, n *corev1.Node) {
			for i := range 300 {
				note(n, fmt.Sprint("hostile.example/", i), anyText(r)[:1])
			}
		},
	}
}

// hostileEditsOfEtcd returns what a host may write on etcd, which does not know what an object is.
func hostileEditsOfEtcd(w *world) []hostileEdit {
	return []hostileEdit{
		func(r *rand.Rand, n *corev1.Node) { n.UID = types.UID(anyText(r)) },
		func(_ *rand.Rand, n *corev1.Node) { n.UID = "" },
		func(r *rand.Rand, n *corev1.Node) { n.Name = w.plan.anyHost(r) },
		func(r *rand.Rand, n *corev1.Node) { n.Finalizers = []string{anyText(r)} },
		func(r *rand.Rand, n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: anyTime(r)} },
		func(r *rand.Rand, n *corev1.Node) {
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: w.plan.anyHost(r), UID: types.UID(anyText(r)), BlockOwnerDeletion: new(true)}}
		},
		func(r *rand.Rand, n *corev1.Node) {
			for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady, anyText(r)} {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: []corev1.TaintEffect{"NoExecute", "NoSchedule", "?"}[r.IntN(3)], TimeAdded: &metav1.Time{Time: anyTime(r)}})
			}
		},
	}
}

// anyText draws a text; seldom a huge one.
func anyText(r *rand.Rand) string {
	return []string{" ", "x", "{", "null", `{"id":1}`, "\x00\xff", "😀", strings.Repeat("a", 300), strings.Repeat("b", 20000), strings.Repeat("c\n", 60000)}[r.IntN(10)]
}

// anyTime draws a time.
func anyTime(r *rand.Rand) time.Time {
	return time.Date([]int{1, 1970, 2000, 2000, 2001, 9999}[r.IntN(6)], 1, 1, 0, r.IntN(60), 0, 0, time.UTC)
}
