package garbagecollector_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// hostile returns a collector that knows Node m, and the pods and Events that host m wrote: tiny ones with one UID, and
// full ones whose references have the UIDs that uidOf returns.
func hostile(uidOf func(reference int) types.UID) (c *garbagecollector.Controller, to map[string]store.Tracker) {
	c, to = garbagecollector.New(memory.New(memory.Options{EndsLeases: true}), &store.Contact{}, slog.New(slog.DiscardHandler)), map[string]store.Tracker{}
	for _, f := range c.Follows() {
		to[f.Kind.Name] = f.To.(store.Tracker)
		f.To.Begin()
	}
	set := func(kind store.Kind, gvk, name, own string, owners []metav1.OwnerReference) {
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: gvk}}
		o.Name, o.UID, o.ResourceVersion, o.OwnerReferences = own, "x", "1", owners
		if gvk != "Node" {
			o.Namespace = "shop"
		}
		to[kind.Name].Set(name, o)
	}
	var full []metav1.OwnerReference
	for i := range controlplane.MostEntries {
		full = append(full, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "m", UID: uidOf(i)})
	}
	for i := range 990 {
		own, owners := fmt.Sprintf("o%d", i), full
		if i < 800 {
			owners = nil
		}
		set(store.Objects, "Pod", "pods/m/shop/"+own, own, owners)
		set(store.Events, "Event", "m/"+own, own, owners)
	}
	set(store.Nodes, "Node", "m", "m", nil) // it was written last
	for _, t := range to {
		t.Synced()
		t.Reached("1")
	}
	return c, to
}

// oneUID and manyUIDs are the UIDs of references: that of all objects, or those of no object.
func oneUID(int) types.UID     { return "x" }
func manyUIDs(i int) types.UID { return types.UID(fmt.Sprint(i)) }

// TestObjectsWithOneUIDAreFoundByName has a host that gives the UID of its Node to all that it writes.
func TestObjectsWithOneUIDAreFoundByName(t *testing.T) {
	c, _ := hostile(oneUID)
	references := 2*190*controlplane.MostEntries + 800 // the small Events belong to the Node
	if owners, dependents := c.Candidates(); owners != references || dependents > references {
		t.Errorf("candidates = %d owners and %d dependents, want one owner for each of %d references", owners, dependents, references)
	}
}

// TestAWriteOfANodeMarksNoDependents has a host that writes its Node while it has many dependents. Followers of all
// controllers wait while objects are marked.
func TestAWriteOfANodeMarksNoDependents(t *testing.T) {
	c, to := hostile(oneUID)
	c.Decide()
	write := func(version string, uid types.UID, finalizers ...string) {
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		o.Name, o.UID, o.ResourceVersion, o.Finalizers = "m", uid, version, finalizers
		to[store.Nodes.Name].Set("m", o)
	}
	decided := func() (n int) {
		c.DecideInParts(func(work int) { n += work })
		return n
	}
	write("2", "x")
	if marked, n := c.Marked(), decided(); marked > 0 || n > 0 {
		t.Errorf("a heartbeat marks %d objects at once, and %d are decided again, want none", marked, n)
	}
	write("3", "x", "example.com/a")
	if marked := c.Marked(); marked > 0 {
		t.Errorf("a finalizer marks %d objects at once, want none", marked)
	}
	write("4", "y")
	if marked := c.Marked(); marked > 0 {
		t.Errorf("another UID marks %d objects at once, want none", marked)
	}
	if due, want := c.Decide(), 2*190; due != want {
		t.Errorf("%d steps are due once the Node has another UID, want %d", due, want)
	}
}

// TestAnUnreadableObjectMarksNoVerdicts has a host with many objects about which there is something to do. Then one of
// its Events can be read, and cannot be, in turn.
func TestAnUnreadableObjectMarksNoVerdicts(t *testing.T) {
	c, to := hostile(manyUIDs)
	due := c.Decide()
	to[store.Events.Name].Unreadable("m/o0", errors.New("broken"))
	if marked := c.Marked(); marked > 0 {
		t.Errorf("an object that cannot be read marks %d objects at once, want none", marked)
	}
	to[store.Events.Name].Delete("m/o0")
	if marked := c.Marked(); marked > 0 {
		t.Errorf("its deletion marks %d objects at once, want none", marked)
	}
	decided := 0
	if again := c.DecideInParts(func(work int) { decided += work }); again != due || decided < due {
		t.Errorf("%d steps are due after %d decisions, want the %d of before", again, decided, due)
	}
}

// TestDecisionsLetRenewalsThrough counts what is decided while followers wait.
func TestDecisionsLetRenewalsThrough(t *testing.T) {
	c, _ := hostile(manyUIDs)
	due := c.DecideInParts(func(work int) {
		if work > 1000+controlplane.MostEntries {
			t.Errorf("decided %d objects and references at once, want about 1000", work)
		}
	})
	if want := 2 * 190; due != want {
		t.Errorf("%d steps are due, want %d", due, want)
	}
}

// TestUnreadableObjectsOfHostsAreNotLookedThrough has a host that writes Events that cannot be read, and one such object
// of people, which may belong to any owner.
func TestUnreadableObjectsOfHostsAreNotLookedThrough(t *testing.T) {
	c, to := hostile(oneUID)
	broken := errors.New("broken")
	for i := range 990 {
		to[store.Events.Name].Unreadable(fmt.Sprintf("m/o%d", i), broken)
	}
	to[store.Objects.Name].Unreadable("things/broken", broken)
	if n := c.Unreadable(store.Pods(true).GVK.GroupKind()); n != 1 {
		t.Errorf("a decision about a pod looks through %d objects that cannot be read, want 1", n)
	}
	to[store.Objects.Name].Delete("things/broken")
	if n := c.Unreadable(store.Pods(true).GVK.GroupKind()); n != 0 {
		t.Errorf("a decision about a pod looks through %d objects that cannot be read, want none", n)
	}
}

// TestWhatIsDeletedDuringADecisionIsForgotten deletes all pods and Events between two parts of a decision.
func TestWhatIsDeletedDuringADecisionIsForgotten(t *testing.T) {
	c, to := hostile(manyUIDs)
	parts := 0
	due := c.DecideInParts(func(int) {
		if parts++; parts > 1 {
			return
		}
		for i := range 990 {
			to[store.Objects.Name].Delete(fmt.Sprintf("pods/m/shop/o%d", i))
			to[store.Events.Name].Delete(fmt.Sprintf("m/o%d", i))
		}
	})
	later, facts := c.Decide(), len(c.Report().Facts)
	if due > 5 || later > 0 || facts > 0 {
		t.Errorf("%d steps were due, then %d with %d facts, want those of the first part, then none", due, later, facts)
	}
}

// BenchmarkOneUID measures a decision about what such a host wrote.
func BenchmarkOneUID(b *testing.B) {
	for name, uidOf := range map[string]func(int) types.UID{
		"that of the Node": oneUID,
		"absent":           manyUIDs,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				c, _ := hostile(uidOf)
				b.StartTimer()
				c.Decide()
			}
		})
	}
}

// TestWhatANodeWritesDelaysNoDeletionOfOthers has a node on Kubernetes that writes an object which refers to another
// Node, and cannot be removed.
func TestWhatANodeWritesDelaysNoDeletionOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		kind, apiVersion, gvk, namespace, name string
		waits                                  bool
	}{
		"its Lease":                       {"leases.coordination.k8s.io", "coordination.k8s.io/v1", "Lease", "kube-node-lease", "evil", false},
		"its CSINode":                     {"csinodes.storage.k8s.io", "storage.k8s.io/v1", "CSINode", "", "evil", false},
		"its ResourceSlice":               {"resourceslices.resource.k8s.io", "resource.k8s.io/v1", "ResourceSlice", "", "victim", false},
		"its CertificateSigningRequest":   {"certificatesigningrequests.certificates.k8s.io", "certificates.k8s.io/v1", "CertificateSigningRequest", "", "victim", false},
		"the Lease of the other Node":     {"leases.coordination.k8s.io", "coordination.k8s.io/v1", "Lease", "kube-node-lease", "victim", true},
		"the CSINode of the other Node":   {"csinodes.storage.k8s.io", "storage.k8s.io/v1", "CSINode", "", "victim", true},
		"a Lease that it may not write":   {"leases.coordination.k8s.io", "coordination.k8s.io/v1", "Lease", "shop", "evil", true},
		"an object that it may not write": {"things.example.com", "example.com/v1", "Thing", "kube-node-lease", "evil", true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
			node.Name, node.UID, node.ResourceVersion = "victim", "u", "5"
			node.DeletionTimestamp, node.Finalizers = &metav1.Time{}, []string{metav1.FinalizerDeleteDependents}
			written := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: c.apiVersion, Kind: c.gvk}}
			written.Namespace, written.Name, written.UID, written.ResourceVersion = c.namespace, c.name, "w", "6"
			written.DeletionTimestamp, written.Finalizers = &metav1.Time{}, []string{"evil/stays"}
			written.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "victim", UID: "u", BlockOwnerDeletion: new(true)}}
			kind := store.Kind{Name: c.kind, GVK: written.GroupVersionKind(), New: store.Nodes.Metadata().New}
			if c.namespace != "" {
				kind.NameOf = func(o store.Object) string { return o.GetNamespace() + "/" + o.GetName() }
			}
			if waits := garbagecollector.Waits(store.Nodes, kind, node, written); (waits != "") != c.waits {
				t.Errorf("the deletion of the Node waits for %q, want it to wait: %v", waits, c.waits)
			}
		})
	}
}
