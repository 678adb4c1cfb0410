// Package storetest has the suite that every store.Store passes. It owns one check for each promise
// of the interface. It waits for reports of the store, never for a time.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

const (
	// checkTimeout bounds one check, also on a machine that is busy with something else.
	checkTimeout = 10 * time.Minute
	// ttl is the duration of terms and Leases that have to end. A check that acts before such an end
	// expects to be too late, and tries again with a longer one.
	ttl = 2 * time.Second
	// lasting is the duration of terms that must not end by themselves.
	lasting = time.Hour
	// retry is the interval between attempts of a candidate.
	retry = 50 * time.Millisecond
	// mark is the annotation by which a check recognizes its writes.
	mark = "example.com/mark"
)

// Backend is a fleet for one check.
type Backend struct {
	Store store.Store
	// Another returns another Store of the same fleet, as for another process.
	Another func(t *testing.T) store.Store
	// Put creates or replaces an object as an agent does. A Lease is alive for its duration from then
	// on.
	Put func(ctx context.Context, kind store.Kind, o store.Object) error
	// PutUnreadable stores an unreadable value under that name.
	PutUnreadable func(ctx context.Context, kind store.Kind, name string) error
	// PutSetting stores a setting as a person does, and removes it if the value is empty. It is for a
	// Store that is a store.Settings.
	PutSetting func(ctx context.Context, name, value string) error
}

// Run checks every promise of store.Store, each with its own Backend.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	RunIn(t, func(t *testing.T, check func(*testing.T)) { check(t) }, newBackend)
}

// RunIn is Run with each check in a bubble, such as one of synctest.Test.
func RunIn(t *testing.T, bubble func(*testing.T, func(*testing.T)), newBackend func(t *testing.T) Backend) {
	for name, check := range map[string]func(*bench){
		"an object is read":                                            checkGet,
		"an object is created once":                                    checkCreate,
		"an update stores what edit changed":                           checkUpdate,
		"an update that changes nothing writes nothing":                checkNoChange,
		"an error of edit is returned as it is":                        checkEditError,
		"writes check their preconditions":                             checkPreconditions,
		"an update conflicts with a write in between":                  checkConflict,
		"of many concurrent updates each is stored once":               checkRace,
		"an object is deleted":                                         checkDelete,
		"a follow lists objects, then reports changes":                 func(b *bench) { checkFollow(b, store.Nodes) },
		"a follow of metadata lists objects, then reports changes":     func(b *bench) { checkFollow(b, store.Nodes.Metadata()) },
		"a follow confirms what it has reported":                       checkConfirmed,
		"a follow of deletions reports each":                           checkFollowDeletions,
		"an object that cannot be read is reported, and stops nothing": checkUnreadable,
		"an object whose name has several parts is like any other":     checkParts,
		"a lease that ends is reported as deleted":                     checkLeaseEnds,
		"a deletion waits for finalizers":                              checkFinalizers,
		"a policy is a finalizer":                                      checkPolicies,
		"a write requires states of other objects":                     checkOthers,
		"a write requires kinds to be unchanged":                       checkUnchanged,
		"the metadata of an object is changed without the rest":        checkMetadata,
		"one of many candidates is elected":                            checkElect,
		"a term that is extended lasts":                                checkExtend,
		"a term that is not extended ends":                             checkTermEnds,
		"a term that is resigned ends at once":                         checkResign,
		"a ttl in parts of seconds is invalid":                         checkTTL,
		"a setting of a person is not replaced":                        checkSettings,
		"a call whose context has ended ends":                          checkCancelled,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), checkTimeout)
				defer cancel()
				b := &bench{T: t, ctx: ctx, Backend: newBackend(t)}
				check(b)
				if err := b.Store.Close(); err != nil {
					t.Errorf("Close() = %v, want no error", err)
				}
			})
		})
	}
}

// bench has the tools of a check.
type bench struct {
	*testing.T
	Backend
	ctx context.Context
}

// put stores an object. An error ends the check.
func (b *bench) put(kind store.Kind, o store.Object) {
	b.Helper()
	if err := b.Put(b.ctx, kind, o); err != nil {
		b.Fatalf("Put(%s %q) = %v, want no error", kind.Name, o.GetName(), err)
	}
}

// get reads an object. An error ends the check.
func (b *bench) get(kind store.Kind, name string) store.Object {
	b.Helper()
	o, err := b.Store.Get(b.ctx, kind, name)
	if err != nil {
		b.Fatalf("Get(%s %q) = %v, want no error", kind.Name, name, err)
	}
	return o
}

// node reads a Node. An error ends the check.
func (b *bench) node(name string) *corev1.Node { return b.get(store.Nodes, name).(*corev1.Node) }

// update changes a mark. An error ends the check.
func (b *bench) update(kind store.Kind, name string, pre store.Preconditions, text string) store.Object {
	b.Helper()
	o, err := b.Store.Update(b.ctx, kind, name, pre, marks(text))
	if err != nil {
		b.Fatalf("Update(%s %q) = %v, want no error", kind.Name, name, err)
	}
	return o
}

// refused checks that Update and Delete with those Preconditions fail and change nothing.
func (b *bench) refused(of store.Store, name string, pre store.Preconditions, why string, want error) {
	b.Helper()
	before := b.node(name)
	if _, err := of.Update(b.ctx, store.Nodes, name, pre, marks("refused")); !errors.Is(err, want) {
		b.Errorf("Update() %s = %v, want an error that is %q", why, err, want)
	}
	if err := of.Delete(b.ctx, store.Nodes, name, pre, ""); !errors.Is(err, want) {
		b.Errorf("Delete() %s = %v, want an error that is %q", why, err, want)
	}
	if after := b.node(name); after.ResourceVersion != before.ResourceVersion {
		b.Errorf("the node after refused writes = %v, want it as before", after)
	}
}

// marks returns an edit that sets the mark.
func marks(text string) func(store.Object) error {
	return func(o store.Object) error {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[mark] = text
		o.SetAnnotations(annotations)
		return nil
	}
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"example.com/kept": "yes"}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"}},
		},
	}
}

func newLease(name string, duration time.Duration) *coordinationv1.Lease {
	seconds, now := int32(duration/time.Second), metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.LeaseNamespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
}

// fresh returns an object of a kind that agents write.
func fresh(kind store.Kind, name string) store.Object {
	if kind.Name == store.Leases.Name {
		return newLease(name, time.Hour)
	}
	return newNode(name)
}

func checkGet(b *bench) {
	if b.Store.Type() == "" || b.Store.Endpoint() == "" {
		b.Errorf("Type(), Endpoint() = %q, %q, want both", b.Store.Type(), b.Store.Endpoint())
	}
	if err := b.Store.Ping(b.ctx); err != nil {
		b.Errorf("Ping() = %v, want no error", err)
	}
	for _, kind := range []store.Kind{store.Nodes, store.Leases} {
		if _, err := b.Store.Get(b.ctx, kind, "a"); !errors.Is(err, controlplane.ErrNotFound) {
			b.Errorf("Get(%s) of nothing = %v, want an error that is %q", kind.Name, err, controlplane.ErrNotFound)
		}
		b.put(kind, fresh(kind, "a"))
		o := b.get(kind, "a")
		if o.GetName() != "a" || o.GetUID() == "" || o.GetResourceVersion() == "" || o.GetObjectKind().GroupVersionKind() != kind.GVK {
			b.Errorf("Get(%s) = %v, want a with UID, version and kind", kind.Name, o)
		}
		if _, err := b.Store.Get(b.ctx, kind, "../a"); !errors.Is(err, controlplane.ErrInvalid) {
			b.Errorf("Get(%s) of a path = %v, want an error that is %q", kind.Name, err, controlplane.ErrInvalid)
		}
	}
}

// newPod returns a pod that any API server accepts.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		// A zero grace period deletes the pod without the confirmation of a host.
		Spec: corev1.PodSpec{NodeName: "a.b", Containers: []corev1.Container{{Name: "c", Image: "example.com/c:1"}}, TerminationGracePeriodSeconds: new(int64)},
	}
}

func checkParts(b *bench) {
	pods := store.Pods(b.Store.EndsLeases())
	f := b.follow(pods, store.AllChanges)
	f.until(synced, "")
	names := map[string]string{}
	for _, own := range []string{"a", "b"} {
		pod := newPod(own)
		b.put(pods, pod)
		names[own] = pods.StoredName(pod)
		f.until(set, names[own])
	}
	stored := b.get(pods, names["a"])
	b.update(pods, names["a"], store.Preconditions{UID: stored.GetUID(), Version: stored.GetResourceVersion()}, "1")
	f.until(set, names["a"])
	condition := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "Test"}
	if _, err := b.Store.Update(b.ctx, pods, names["a"], store.Preconditions{}, func(o store.Object) error {
		pod := o.(*corev1.Pod)
		pod.Status.Conditions = append(pod.Status.Conditions, condition)
		return nil
	}); err != nil {
		b.Errorf("Update() of a status = %v, want no error", err)
	}
	pod, _ := b.get(pods, names["a"]).(*corev1.Pod)
	if pod.Annotations[mark] != "1" || len(pod.Status.Conditions) != 1 || pod.Status.Conditions[0].Type != condition.Type {
		b.Errorf("pod after updates = %v, want mark and condition", pod)
	}
	if err := b.Store.Delete(b.ctx, pods, names["a"], store.Preconditions{UID: "another"}, ""); !errors.Is(err, controlplane.ErrConflict) {
		b.Errorf("Delete() of another UID = %v, want an error that is %q", err, controlplane.ErrConflict)
	}
	if err := b.Store.Delete(b.ctx, pods, names["a"], store.Preconditions{UID: pod.UID}, ""); err != nil {
		b.Errorf("Delete() = %v, want no error", err)
	}
	f.until(deleted, names["a"])
	b.get(pods, names["b"])
	for _, name := range []string{"a", "", "../nodes/a", "default/", "default/../a", "/a", "default/" + strings.Repeat("a", 254)} {
		if _, err := b.Store.Get(b.ctx, pods, name); !errors.Is(err, controlplane.ErrInvalid) {
			b.Errorf("Get(%q) = %v, want an error that is %q", name, err, controlplane.ErrInvalid)
		}
	}
	f.end()
}

func checkUpdate(b *bench) {
	b.put(store.Nodes, newNode("a"))
	before := b.node("a")
	taint := corev1.Taint{Key: "example.com/taint", Effect: corev1.TaintEffectNoExecute}
	for what, edit := range map[string]func(*corev1.Node){
		"spec":   func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint) },
		"status": func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
		"both": func(n *corev1.Node) {
			n.Spec.Unschedulable, n.Status.Conditions[0].Reason = true, "Changed"
		},
	} {
		o, err := b.Store.Update(b.ctx, store.Nodes, "a", store.Preconditions{}, func(o store.Object) error {
			edit(o.(*corev1.Node))
			return nil
		})
		if err != nil {
			b.Fatalf("Update() of %s = %v, want no error", what, err)
		}
		if read := b.node("a"); o.GetResourceVersion() != read.ResourceVersion {
			b.Errorf("Update() of %s returned version %s, want %s as stored", what, o.GetResourceVersion(), read.ResourceVersion)
		}
	}
	after := b.node("a")
	ready := after.Status.Conditions[0]
	if after.UID != before.UID || after.Labels["example.com/kept"] != "yes" || len(after.Status.Addresses) != 2 ||
		!after.Spec.Unschedulable || ready.Status != corev1.ConditionUnknown || ready.Reason != "Changed" {
		b.Errorf("the node after updates = %v, want all changes and nothing else changed", after)
	}
	found := false
	for _, t := range after.Spec.Taints {
		found = found || t.Key == taint.Key && t.Effect == taint.Effect
	}
	if !found {
		b.Errorf("taints after an update = %v, want %v with them", after.Spec.Taints, taint)
	}
	b.put(store.Leases, newLease("a", time.Hour))
	b.update(store.Leases, "a", store.Preconditions{}, "lease")
	if got := b.get(store.Leases, "a").GetAnnotations()[mark]; got != "lease" {
		b.Errorf("mark of the lease = %q, want that of the update", got)
	}
}

func checkNoChange(b *bench) {
	b.put(store.Nodes, newNode("a"))
	before := b.node("a")
	o, err := b.Store.Update(b.ctx, store.Nodes, "a", store.Preconditions{}, func(store.Object) error { return nil })
	if err != nil || o.GetResourceVersion() != before.ResourceVersion {
		b.Errorf("Update() that changes nothing = %v, %v, want the object as it is stored", o, err)
	}
	if after := b.node("a"); after.ResourceVersion != before.ResourceVersion {
		b.Errorf("version after an update that changes nothing = %s, want %s as before", after.ResourceVersion, before.ResourceVersion)
	}
}

func checkEditError(b *bench) {
	b.put(store.Nodes, newNode("a"))
	before, refusal := b.node("a"), errors.New("not wanted any more")
	_, err := b.Store.Update(b.ctx, store.Nodes, "a", store.Preconditions{}, func(o store.Object) error {
		_ = marks("refused")(o)
		return refusal
	})
	if err != refusal {
		b.Errorf("Update() = %v, want the error of edit itself", err)
	}
	if after := b.node("a"); after.ResourceVersion != before.ResourceVersion {
		b.Errorf("the node after an error of edit = %v, want it as before", after)
	}
}

func checkPreconditions(b *bench) {
	_, err := b.Store.Update(b.ctx, store.Nodes, "a", store.Preconditions{}, marks("x"))
	if !errors.Is(err, controlplane.ErrNotFound) {
		b.Errorf("Update() of nothing = %v, want an error that is %q", err, controlplane.ErrNotFound)
	}
	b.put(store.Nodes, newNode("a"))
	first := b.node("a")
	b.update(store.Nodes, "a", store.Preconditions{UID: first.UID, Version: first.ResourceVersion}, "first")
	b.refused(b.Store, "a", store.Preconditions{Version: first.ResourceVersion}, "of an earlier version", controlplane.ErrConflict)
	b.refused(b.Store, "a", store.Preconditions{UID: "another"}, "of another UID", controlplane.ErrConflict)
	second := b.update(store.Nodes, "a", store.Preconditions{UID: first.UID}, "second")
	if err := b.Store.Delete(b.ctx, store.Nodes, "a", store.Preconditions{UID: first.UID, Version: second.GetResourceVersion()}, ""); err != nil {
		b.Errorf("Delete() of what was read = %v, want no error", err)
	}
}

func checkConflict(b *bench) {
	b.put(store.Nodes, newNode("a"))
	another := b.Another(b.T)
	_, err := b.Store.Update(b.ctx, store.Nodes, "a", store.Preconditions{}, func(o store.Object) error {
		if _, err := another.Update(b.ctx, store.Nodes, "a", store.Preconditions{}, marks("another")); err != nil {
			b.Fatalf("Update() in between = %v, want no error", err)
		}
		return marks("late")(o)
	})
	if !errors.Is(err, controlplane.ErrConflict) {
		b.Errorf("Update() of what was written in between = %v, want an error that is %q", err, controlplane.ErrConflict)
	}
	if got := b.node("a").Annotations[mark]; got != "another" {
		b.Errorf("mark = %q, want that of the write in between", got)
	}
}

func checkRace(b *bench) {
	b.put(store.Nodes, newNode("a"))
	const writers, writes = 8, 5
	stores := []store.Store{b.Store, b.Another(b.T)}
	errs := make(chan error, writers)
	for i := range writers {
		go func() { errs <- count(b.ctx, stores[i%len(stores)], writes) }()
	}
	for range writers {
		if err := <-errs; err != nil {
			b.Error(err)
		}
	}
	if got, want := b.node("a").Annotations[mark], strconv.Itoa(writers*writes); got != want {
		b.Errorf("count after %d updates = %s, want %s", writers*writes, got, want)
	}
}

// count adds one to the mark that many times. It repeats each attempt that ends in a conflict.
func count(ctx context.Context, s store.Store, times int) error {
	for done := 0; done < times; {
		_, err := s.Update(ctx, store.Nodes, "a", store.Preconditions{}, func(o store.Object) error {
			n, _ := strconv.Atoi(o.GetAnnotations()[mark]) // 0 at the start
			return marks(strconv.Itoa(n + 1))(o)
		})
		switch {
		case err == nil:
			done++
		case !errors.Is(err, controlplane.ErrConflict):
			return fmt.Errorf("Update() among others = %w, want no error or a conflict", err)
		}
	}
	return nil
}

func checkDelete(b *bench) {
	for _, kind := range []store.Kind{store.Nodes, store.Leases} {
		if err := b.Store.Delete(b.ctx, kind, "a", store.Preconditions{}, ""); !errors.Is(err, controlplane.ErrNotFound) {
			b.Errorf("Delete(%s) of nothing = %v, want an error that is %q", kind.Name, err, controlplane.ErrNotFound)
		}
		b.put(kind, fresh(kind, "a"))
		if err := b.Store.Delete(b.ctx, kind, "a", store.Preconditions{}, ""); err != nil {
			b.Errorf("Delete(%s) = %v, want no error", kind.Name, err)
		}
		if _, err := b.Store.Get(b.ctx, kind, "a"); !errors.Is(err, controlplane.ErrNotFound) {
			b.Errorf("Get(%s) after Delete() = %v, want an error that is %q", kind.Name, err, controlplane.ErrNotFound)
		}
	}
}

func checkCancelled(b *bench) {
	b.put(store.Nodes, newNode("a"))
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	s := b.Store
	for call, err := range map[string]error{
		"Ping()":   s.Ping(ctx),
		"Get()":    second(s.Get(ctx, store.Nodes, "a")),
		"Create()": second(s.Create(ctx, store.Nodes, newNode("b"))),
		"Update()": second(s.Update(ctx, store.Nodes, "a", store.Preconditions{}, marks("x"))),
		"Delete()": s.Delete(ctx, store.Nodes, "a", store.Preconditions{}, ""),
		"Follow()": s.Follow(ctx, store.Nodes, store.AllChanges, newFollower()),
		"Leader()": second(s.Leader(ctx, "c")),
	} {
		if !errors.Is(err, context.Canceled) {
			b.Errorf("%s whose context has ended = %v, want an error that is %q", call, err, context.Canceled)
		}
	}
	if _, _, err := s.Elect(ctx, "c", "x", lasting); !errors.Is(err, context.Canceled) {
		b.Errorf("Elect() whose context has ended = %v, want an error that is %q", err, context.Canceled)
	}
	b.node("a")
}

// second is the second of two results.
func second[T any](_ T, err error) error { return err }
