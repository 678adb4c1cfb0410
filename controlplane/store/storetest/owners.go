package storetest

import (
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

const finalizer = "example.com/finalizer"

// finalizers sets the finalizers of a Node.
func (b *bench) finalizers(name string, finalizers ...string) {
	b.Helper()
	_, err := b.Store.Update(b.ctx, store.Nodes.Metadata(), name, store.Preconditions{}, func(o store.Object) error {
		o.SetFinalizers(finalizers)
		return nil
	})
	if err != nil {
		b.Fatalf("Update() of finalizers = %v, want no error", err)
	}
}

// delete requests the deletion of a Node.
func (b *bench) delete(name string, policy metav1.DeletionPropagation) {
	b.Helper()
	if err := b.Store.Delete(b.ctx, store.Nodes, name, store.Preconditions{}, policy); err != nil {
		b.Fatalf("Delete(%s, %q) = %v, want no error", name, policy, err)
	}
}

// gone checks whether a Node does not exist.
func (b *bench) gone(name string, want bool) {
	b.Helper()
	_, err := b.Store.Get(b.ctx, store.Nodes, name)
	if got := errors.Is(err, controlplane.ErrNotFound); got != want || err != nil && !got {
		b.Errorf("Get(%s) = %v, want it gone: %v", name, err, want)
	}
}

func checkFinalizers(b *bench) {
	b.put(store.Nodes, newNode("a"))
	b.finalizers("a", finalizer)
	b.delete("a", "")
	first := b.node("a")
	if first.DeletionTimestamp == nil || !slices.Equal(first.Finalizers, []string{finalizer}) {
		b.Errorf("node with a finalizer after Delete() = %v, want a deletionTimestamp", first)
	}
	b.delete("a", "")
	if again := b.node("a"); again.ResourceVersion != first.ResourceVersion {
		b.Errorf("version after another Delete() = %s, want %s as before", again.ResourceVersion, first.ResourceVersion)
	}
	b.update(store.Nodes, "a", store.Preconditions{}, "1")
	b.gone("a", false)
	f := b.follow(store.Nodes, store.AllChanges)
	f.until(synced, "")
	b.finalizers("a")
	b.gone("a", true)
	if c := f.until(deleted, "a"); c.object != nil && c.object.GetUID() != first.UID {
		b.Errorf("reported with a deletion = %v, want the last state", c.object)
	}
	f.end()
}

func checkPolicies(b *bench) {
	for _, c := range []struct {
		policy metav1.DeletionPropagation
		before []string
		want   []string // nil if the Node does not exist
	}{
		{metav1.DeletePropagationBackground, nil, nil},
		{metav1.DeletePropagationBackground, []string{metav1.FinalizerOrphanDependents}, nil},
		{metav1.DeletePropagationForeground, nil, []string{metav1.FinalizerDeleteDependents}},
		{metav1.DeletePropagationForeground, []string{metav1.FinalizerOrphanDependents, finalizer}, []string{finalizer, metav1.FinalizerDeleteDependents}},
		{metav1.DeletePropagationOrphan, []string{metav1.FinalizerDeleteDependents}, []string{metav1.FinalizerOrphanDependents}},
		{"", []string{metav1.FinalizerOrphanDependents}, []string{metav1.FinalizerOrphanDependents}},
	} {
		b.put(store.Nodes, newNode("a"))
		b.finalizers("a", c.before...)
		b.delete("a", c.policy)
		if b.gone("a", c.want == nil); c.want == nil {
			continue
		}
		got := b.node("a").Finalizers
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			b.Errorf("finalizers %v after Delete(%q) = %v, want %v", c.before, c.policy, got, c.want)
		}
		b.finalizers("a")
	}
}

func checkOthers(b *bench) {
	b.put(store.Nodes, newNode("a"))
	b.put(store.Nodes, newNode("owner"))
	exists := b.node("owner")
	owner := store.Reference{Kind: store.Nodes, Name: "owner", UID: exists.UID}
	named := store.Reference{Kind: store.Nodes, Name: "owner"}
	other := store.Reference{Kind: store.Nodes, Name: "owner", UID: "another"}
	none := store.Reference{Kind: store.Leases, Name: "none", UID: exists.UID}
	was := owner
	was.Version = exists.ResourceVersion
	forget := func() {
		if !b.Store.EndsLeases() { // the store may have read the other object up to half a second ago
			time.Sleep(time.Second)
		}
	}
	others := func(r ...store.Reference) store.Preconditions { return store.Preconditions{Others: r} }
	b.refused(b.Store, "a", others(none, owner), "although an object exists", controlplane.ErrConflict)
	b.refused(b.Store, "a", others(named), "although an object of that name exists", controlplane.ErrConflict)
	b.update(store.Nodes, "a", others(none, other, was), "1")
	b.update(store.Nodes, "owner", store.Preconditions{}, "1")
	b.refused(b.Store, "a", others(was), "although the other object has changed just now", controlplane.ErrConflict)
	was.Version = b.node("owner").ResourceVersion
	b.update(store.Nodes, "a", others(was), "2")
	waits, orphans := owner, owner
	waits.Deletion, orphans.Deletion = metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	b.refused(b.Store, "a", others(waits), "although the deletion of the other object was not requested", controlplane.ErrConflict)
	b.delete("owner", metav1.DeletePropagationForeground)
	b.refused(b.Store, "a", others(orphans), "although the other object waits for its dependents", controlplane.ErrConflict)
	b.update(store.Nodes, "a", others(waits), "4")
	b.delete("owner", metav1.DeletePropagationOrphan)
	forget()
	b.refused(b.Store, "a", others(waits), "although the other object waits for its dependents no more", controlplane.ErrConflict)
	b.update(store.Nodes, "a", others(orphans), "5")
	b.delete("owner", metav1.DeletePropagationBackground)
	forget()
	b.refused(b.Store, "a", others(was), "although the other object does not exist", controlplane.ErrConflict)
	b.update(store.Nodes, "a", others(owner, named), "3")
	if err := b.Store.Delete(b.ctx, store.Nodes, "a", others(owner, none, other), ""); err != nil {
		b.Errorf("Delete() = %v, want no error", err)
	}
}

// tracker is a Follower that records the last version it has reached.
type tracker struct {
	*follower
	mu      sync.Mutex // guards version
	version string
}

func (t *tracker) Reached(version string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version = version
	t.record(call{what: reached})
}

// position returns how far the changes of Nodes were reported.
func (t *tracker) position() store.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return store.Position{Kind: store.Nodes, Version: t.version}
}

func checkUnchanged(b *bench) {
	b.put(store.Nodes, newNode("a"))
	t := &tracker{follower: newFollower()}
	f := b.followTo(store.Nodes, store.AllChanges, t, t.follower)
	f.until(reached, "")
	first := t.position()
	unchanged := func(p store.Position) store.Preconditions { return store.Preconditions{Unchanged: []store.Position{p}} }
	b.update(store.Nodes, "a", unchanged(first), "1")
	f.until(set, "a")
	f.until(reached, "")
	second := t.position()
	b.refused(b.Store, "a", unchanged(first), "after a change", controlplane.ErrConflict)
	b.put(store.Nodes, newNode("b"))
	if !b.Store.EndsLeases() { // it checks only up to the version of the object
		b.update(store.Nodes, "a", store.Preconditions{}, "2")
	}
	b.refused(b.Store, "a", unchanged(second), "after another object was created", controlplane.ErrConflict)
	f.until(set, "b")
	f.until(reached, "")
	if !b.Store.EndsLeases() {
		f.until(set, "a")
		f.until(reached, "")
	}
	b.delete("b", "") // this changes no existing object
	b.update(store.Nodes, "a", unchanged(t.position()), "3")
	f.end()
	if b.Store.EndsLeases() {
		checkUnchangedByPeople(b)
	}
}

// checkUnchangedByPeople has objects below the folders of two hosts, and one of people.
func checkUnchangedByPeople(b *bench) {
	t := &tracker{follower: newFollower()}
	f := b.followTo(store.Objects, store.AllChanges, t, t.follower)
	f.until(reached, "")
	at := store.Position{Kind: store.Objects, Version: t.position().Version, ByPeople: true, Host: "a"}
	update := func(want error, what string) {
		b.Helper()
		_, err := b.Store.Update(b.ctx, store.Nodes, "a", store.Preconditions{Unchanged: []store.Position{at}}, func(o store.Object) error {
			o.SetAnnotations(map[string]string{"example.com/by": what})
			return nil
		})
		if !errors.Is(err, want) {
			b.Errorf("Update() after %s = %v, want %v", what, err, want)
		}
	}
	pod := func(host string) {
		b.put(store.Pods(true), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeName: host}})
	}
	pod("b")
	update(nil, "a write of another host")
	pod("a")
	update(controlplane.ErrConflict, "a write of the host")
	at.Host = ""
	update(nil, "writes of hosts")
	f.end()
}

func checkMetadata(b *bench) {
	b.put(store.Nodes, newNode("a"))
	before := b.node("a")
	_, err := b.Store.Update(b.ctx, store.Nodes.Metadata(), "a", store.Preconditions{UID: before.UID, Version: before.ResourceVersion}, func(o store.Object) error {
		o.SetFinalizers([]string{finalizer})
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "b", UID: "b"}, {APIVersion: "v1", Kind: "Node", Name: "c", UID: "c"}})
		return nil
	})
	if err != nil {
		b.Fatalf("Update() of metadata = %v, want no error", err)
	}
	after := b.node("a")
	ready := slices.ContainsFunc(after.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if !ready || len(after.Status.Addresses) != 2 || len(after.Finalizers) != 1 || len(after.OwnerReferences) != 2 || after.UID != before.UID {
		b.Errorf("node after an update of metadata = %v, want the rest as it was", after)
	}
	if _, err := b.Store.Update(b.ctx, store.Nodes.Metadata(), "a", store.Preconditions{}, func(o store.Object) error {
		o.SetOwnerReferences(o.GetOwnerReferences()[1:])
		return nil
	}); err != nil {
		b.Fatalf("Update() of metadata = %v, want no error", err)
	}
	if owners := b.node("a").OwnerReferences; len(owners) != 1 || owners[0].UID != "c" {
		b.Errorf("owners = %v, want c alone", owners)
	}
	b.finalizers("a")
}
