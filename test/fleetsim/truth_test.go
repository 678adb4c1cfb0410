package fleetsim

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// slack is how long before its write a server may have decided, and so how old facts may be that count
// against it.
const slack = 10 * time.Second

// truth knows what really happens, and checks each write. The driver's goroutine owns it.
type truth struct {
	w     *world
	hosts map[string]*life
	nodes map[string]types.UID // of the stored Nodes
	slots slotTruth
	// deposed reports that the term of the request that is served has ended, or that it has none.
	deposed bool
	cordons map[string]bool // what persons have decided about Nodes: true to cordon them
	content uint64          // hash of all that was written
	// wasRestored reports that the store went back to an earlier state.
	wasRestored bool
	leases      map[string]bool         // hosts whose Lease is stored
	ended       map[types.UID]time.Time // when pods were deleted; zero for those that exist
	resumed     map[string]resumed      // by zone
}

// life is what really happens to a host.
type life struct {
	alive      bool
	since      time.Time   // since when it is alive or dead
	renewals   []time.Time // when its renewals were stored
	contacts   []time.Time // when it got the answers to its renewals
	sign       time.Time   // when the store last got anything from it
	tainted    time.Time   // since when its Node has the taint of an unreachable host; zero if it has not
	untainted  time.Time   // since when it has not
	registered time.Time   // since when its Node exists
	reboots    bool        // its Node says that it is amid a reboot
	taken      bool        // its Node is another machine's
	hostile    bool        // it writes anything
	repaired   bool        // it was hostile
	stops      time.Time   // when it last began to stop the critical pods, before its reboot command
	ended      time.Time   // when its Node last said that its reboot was over, or given up
	ready      bool        // its Node says so
}

func newTruth(w *world) *truth {
	return &truth{w: w, hosts: map[string]*life{}, nodes: map[string]types.UID{}, cordons: map[string]bool{}, leases: map[string]bool{}, ended: map[types.UID]time.Time{}, resumed: map[string]resumed{}, slots: newSlotTruth()}
}

func (t *truth) of(host string) *life {
	if t.hosts[host] == nil {
		t.hosts[host] = &life{}
	}
	return t.hosts[host]
}

// lives records that a host starts or dies.
func (t *truth) lives(host string, alive bool) {
	f := t.of(host)
	f.alive, f.since = alive, time.Now()
}

// answered records that a process has got an answer.
func (t *truth) answered(q *request) {
	if q.err == nil && q.loop == "lease" && q.Call == memory.Update {
		f := t.of(q.of.name)
		f.contacts = append(f.contacts, time.Now())
	}
}

// wrote checks a write. It is called before the write is visible.
func (t *truth) wrote(path string, before, after []byte) {
	t.w.slept.Load()
	h := fnv.New64a()
	fmt.Fprintln(h, t.content, path)
	h.Write(after)
	t.content = h.Sum64()
	kind, name, _ := strings.Cut(path, "/")
	q := t.w.serving
	if kind == "nodes" && q != nil {
		t.replaced(q, name, before, after)
	}
	switch {
	case kind == "nodes":
		t.exists(name, after)
	case kind == "leases":
		t.leases[name] = after != nil
	case strings.HasPrefix(path, t.w.plan.pods().Folder()) && before == nil:
		t.ended[metadataOf(after).UID] = time.Time{}
	case strings.HasPrefix(path, t.w.plan.pods().Folder()) && after == nil:
		t.ended[metadataOf(before).UID] = time.Now()
	}
	if path == t.w.plan.group() {
		t.group(q, path, after)
	}
	t.mirrored()
	if q == nil {
		return
	}
	if kind == "nodes" {
		t.cordoned(q, name, decodeNode(before), decodeNode(after))
	}
	byServer := t.w.server(q.of.name) != nil
	if byServer && t.deposed {
		t.writesDeposed(q, path, before, after)
	}
	if byServer && q.Term != (store.Term{}) && t.w.plan.Engine == kubernetes {
		t.compares(q, path)
	}
	switch {
	case (kind == "nodes" || kind == "leases") && t.of(name).hostile: // it may suffer
	case kind == "nodes" && after != nil && q.of.name == name:
		t.of(name).sign = time.Now()
		t.progress(name, decodeNode(q.of.clock.seen(after)))
	case kind == "leases" && after != nil && q.of.name == name:
		f := t.of(name)
		f.sign = time.Now()
		f.renewals = append(f.renewals, time.Now())
	case kind == "nodes":
		t.node(q, name, before, after, byServer)
	case byServer && strings.HasPrefix(path, "objects/pods/"):
		t.pod(q, before, after)
	}
	if q.Term.Controller == garbagecollector.Name {
		t.deleted(q, path, before, after)
	}
}

// compares checks a write in a term on Kubernetes, which cannot compare the term. So the write compares the object with the
// one that it was decided from: by version, or only by UID if the server deletes a pod, or answers a host whose Node it has
// read. The record of a group is read when it is decided.
func (t *truth) compares(q *request, path string) {
	answers := q.Term.Controller == reboots.Name
	if answers && path == t.w.plan.group() {
		return
	}
	if q.UID == "" || q.Version == "" && !answers {
		t.w.fail("a write compares what it was decided from", "%s made request %s with UID %q and version %q", q.of.name, q.key, q.UID, q.Version)
	}
}

// writesDeposed checks a write of a server that does not lead. On Kubernetes, see compares. Without a term, a server only changes
// the slots, and says on a Node that a slot has ended.
func (t *truth) writesDeposed(q *request, path string, before, after []byte) {
	was, is := decodeNode(before), decodeNode(after)
	switch {
	case q.Term != (store.Term{}) && t.w.plan.Engine == kubernetes, q.Term == (store.Term{}) && path == t.w.plan.group():
		return
	case q.Term == (store.Term{}) && strings.HasPrefix(path, "nodes/") && was != nil && is != nil:
		delete(was.Annotations, controlplane.AnnotationRebootSlot)
		delete(is.Annotations, controlplane.AnnotationRebootSlot)
		if maps.Equal(was.Annotations, is.Annotations) && reflect.DeepEqual(was.Spec, is.Spec) && reflect.DeepEqual(was.Status, is.Status) {
			return
		}
	}
	t.w.fail("a server that does not lead writes nothing", "%s made request %s in the term %+v, which has ended", q.of.name, q.key, q.Term)
}

// exists records which Node is stored under a name.
func (t *truth) exists(name string, after []byte) {
	t.record(name, decodeNode(after))
}

// record is exists for a Node; nil if there is none.
func (t *truth) record(name string, is *corev1.Node) {
	f := t.of(name)
	if is == nil || t.nodes[name] != is.UID {
		t.slots.members, f.registered = time.Now(), time.Now()
	}
	h := t.w.host(name)
	f.taken = is != nil && h != nil && controlplane.IdentityOf(is).Differs(h.identity())
	delete(t.nodes, name)
	delete(t.slots.granted, name)
	if is != nil {
		t.nodes[name] = is.UID
		if slot, err := controlplane.RebootSlotOf(is.Annotations); err == nil && slot != nil && slot.Granted != nil {
			t.slots.granted[name] = slot.Slot
		}
	}
	if is == nil || !tainted(is) {
		if !f.tainted.IsZero() {
			f.untainted = time.Now()
		}
		f.tainted = time.Time{}
	} else if f.tainted.IsZero() {
		f.tainted = time.Now()
	}
	f.ready = is != nil && readyOf(is) == corev1.ConditionTrue
	t.resumes()
}

// node checks a write of a Node.
func (t *truth) node(q *request, name string, before, after []byte, byServer bool) {
	was, is := decodeNode(before), decodeNode(after)
	if !byServer || was == nil || is == nil {
		return
	}
	f := t.of(name)
	renewed := t.renewed(q, name)
	if renewed.IsZero() || !f.alive && renewed.Before(t.w.storage.ended) { // it is down, and its Lease was ended early
		return
	}
	ago := time.Since(renewed).Round(time.Millisecond)
	if readyOf(is) == corev1.ConditionUnknown && readyOf(was) != corev1.ConditionUnknown {
		t.w.fail("a live host is not judged dead", "%s set Node %s to Unknown, whose Lease was renewed %v before", q.of.name, name, ago)
	}
	if tainted(is) && !tainted(was) {
		t.w.fail("a live host gets no taint", "%s gave Node %s a NoExecute taint as unreachable, whose Lease was renewed %v before", q.of.name, name, ago)
	}
}

// renewed returns when the host last renewed its Lease within its grace, and early enough that the write of a server must not
// judge it dead; zero if there was no such renewal. On etcd, the write compares the Lease.
func (t *truth) renewed(q *request, name string) time.Time {
	f := t.of(name)
	if n := len(f.renewals); t.w.plan.Engine == etcd && t.leases[name] && n > 0 && f.renewals[n-1].After(q.asked.Add(-t.w.plan.grace())) {
		return f.renewals[n-1]
	}
	return within(f.renewals, q.asked, t.w.plan.grace())
}

// pod checks a write of a pod by a server.
func (t *truth) pod(q *request, before, after []byte) {
	was, is := decodePod(before), decodePod(after)
	if was != nil && q.Term.Controller == reboots.Name {
		t.emptied(q, was)
		return
	}
	// Kubernetes deletes a pod that is evicted. Here, no kubelet has to confirm that.
	deleted := is == nil && q.Term.Controller == eviction.Name
	if was == nil || was.DeletionTimestamp != nil || !deleted && (is == nil || is.DeletionTimestamp == nil) {
		return
	}
	f := t.of(was.Spec.NodeName)
	if f.hostile {
		return
	}
	renewed := t.renewed(q, was.Spec.NodeName)
	if t.nodes[was.Spec.NodeName] != "" && (t.w.plan.Engine == etcd || q.asked.Sub(f.registered) > slack) && !renewed.IsZero() {
		t.w.fail("no pod of a live host is evicted", "%s evicted pod %s of host %s, whose Lease was renewed %v before",
			q.of.name, was.Name, was.Spec.NodeName, time.Since(renewed).Round(time.Millisecond))
	}
}

// emptied checks a server that evicts a pod so that its host can reboot.
func (t *truth) emptied(q *request, pod *corev1.Pod) {
	if t.w.forbids(pod.Name) != "" {
		t.w.fail("no pod is evicted while its budget forbids that", "%s evicted pod %s by %s", q.of.name, pod.Name, q.Call)
	}
	h := t.w.host(pod.Spec.NodeName)
	_, holds := t.slots.holders[h.name]
	r := h.agent.reboot.Report().Request
	if now := r != nil && r.Now; !holds && !now && !t.of(h.name).hostile && time.Since(t.slots.lost[h.name]) > notice {
		t.w.fail("no pod is evicted for a reboot without a slot", "%s evicted pod %s, and %s has no slot", q.of.name, pod.Name, h.name)
	}
}

// deleted checks a write of the garbage collector: no owner may live of an object that is deleted, or that does not refer to
// it any more.
func (t *truth) deleted(q *request, path string, before, after []byte) {
	kept := metadataOf(after).OwnerReferences
	for _, owner := range metadataOf(before).OwnerReferences {
		if t.owns(owner) && !slices.ContainsFunc(kept, func(k metav1.OwnerReference) bool { return k.UID == owner.UID }) {
			t.w.fail("no object is deleted whose owner lives", "%s changed %s by %s, whose owner is %s %s", q.of.name, path, q.Call, owner.Kind, owner.Name)
		}
	}
}

// owns reports whether an owner is stored.
func (t *truth) owns(owner metav1.OwnerReference) bool {
	ended, known := t.ended[owner.UID]
	return known && ended.IsZero() || owner.Kind == "Node" && t.nodes[owner.Name] == owner.UID
}

// metadataOf decodes the metadata of a value; empty if there is none.
func metadataOf(value []byte) (o metav1.PartialObjectMetadata) {
	_ = json.Unmarshal(value, &o) // a hostile host may write anything
	return o
}

func decodeNode(value []byte) *corev1.Node {
	n := &corev1.Node{}
	if value == nil || json.Unmarshal(value, n) != nil {
		return nil
	}
	return n
}

func decodePod(value []byte) *corev1.Pod {
	p := &corev1.Pod{}
	if value == nil || json.Unmarshal(value, p) != nil {
		return nil
	}
	return p
}

func readyOf(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// tainted reports whether a Node has the NoExecute taint of an unreachable host.
func tainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute
	})
}

// restored records that the store has an earlier content.
func (t *truth) restored(w *world) {
	t.slots.outage, t.slots.restored, t.wasRestored = time.Now(), time.Now(), true
	clear(t.slots.granted)
	clear(t.cordons)
	t.group(nil, w.plan.group(), w.store.Raw(w.plan.group()))
	for _, c := range w.clients { // nobody knows which of them reboot
		t.forced(c.id)
	}
	for uid, ended := range t.ended {
		if ended.IsZero() {
			t.ended[uid] = time.Now()
		}
	}
	for _, name := range w.store.Names(w.plan.pods()) {
		t.ended[metadataOf(w.store.Raw(w.plan.pods().Folder()+name)).UID] = time.Time{}
	}
	for _, h := range w.hosts {
		o, err := w.store.Peek(store.Nodes, h.name)
		f := t.of(h.name)
		t.leases[h.name] = w.store.Raw("leases/"+h.name) != nil
		delete(t.nodes, h.name)
		f.tainted = time.Time{}
		if f.repaired { // a person deletes what it has written, if that is back
			w.store.Remove(store.Nodes, h.name)
			w.store.Remove(store.Leases, h.name)
			continue
		}
		if err != nil { // nobody knows whether it reboots
			t.forced(h.name)
			continue
		}
		t.record(h.name, o.(*corev1.Node))
	}
	t.resumes()
}
