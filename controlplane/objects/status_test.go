package objects_test

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects/objectstest"
)

// counted checks the number of store calls that do makes.
func counted(t *testing.T, store *objectstest.Store, what string, gets, puts int, do func()) {
	t.Helper()
	before := [2]int{store.Calls(objectstest.Get), store.Calls(objectstest.Put)}
	do()
	if got := [2]int{store.Calls(objectstest.Get) - before[0], store.Calls(objectstest.Put) - before[1]}; got != [2]int{gets, puts} {
		t.Errorf("%s: gets and puts = %v, want %v", what, got, [2]int{gets, puts})
	}
}

func TestAStatusIsOneWriteWithoutARead(t *testing.T) {
	store := objectstest.New()
	a := newAgent(t, store, here)
	node := a.registered()
	update := func() {
		stored, err := a.UpdateStatus(t.Context(), newNode("n", here))
		if err != nil || stored.UID != node.UID {
			t.Errorf("UpdateStatus() = %v, %v, want it stored", stored, err)
		}
	}
	counted(t, store, "nobody else writes", 0, 1, update)
	err := objectstest.EditNode(t.Context(), store, "n", func(n *corev1.Node) { n.Labels["theirs"] = "kept" })
	if err != nil {
		t.Fatal(err)
	}
	counted(t, store, "somebody has written", 0, 2, update)
	if n, err := a.Node(t.Context(), "n"); err != nil || n.Labels["theirs"] != "kept" {
		t.Errorf("Node() = %v, %v, want another's label kept", n, err)
	}
	store.Inject(objectstest.Put, objectstest.Fault{Conflict: true})
	if _, err := a.UpdateStatus(t.Context(), newNode("n", here)); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("UpdateStatus() where somebody is always faster = %v, want %v", err, controlplane.ErrConflict)
	}
}

// A condition belongs to hostler even if the answer to its write was lost.
func TestAConditionOfALostWriteGoesWithIt(t *testing.T) {
	store := objectstest.New()
	a := newAgent(t, store, here)
	a.registered()
	update := newNode("n", here)
	update.Status.Conditions = append(update.Status.Conditions, corev1.NodeCondition{Type: "backup.example.com/Fine", Status: corev1.ConditionTrue})
	store.Inject(objectstest.Put, objectstest.Fault{LoseAnswer: true, Times: 1})
	if _, err := a.UpdateStatus(t.Context(), update); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Fatalf("UpdateStatus() without an answer = %v, want %v", err, controlplane.ErrUnavailable)
	}
	stored, err := a.UpdateStatus(t.Context(), newNode("n", here))
	if err != nil || len(stored.Status.Conditions) != 1 {
		t.Errorf("UpdateStatus() = %v, %v, want Ready alone", stored.Status.Conditions, err)
	}
}

func TestACordonHasItsTaint(t *testing.T) {
	store := objectstest.New()
	a := newAgent(t, store, here)
	a.registered()
	for _, want := range []bool{true, true, false} {
		store.Inject(objectstest.Put, objectstest.Fault{Conflict: true, Times: 1})
		n, err := a.Cordon(t.Context(), "n", want, false)
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
		if err != nil || n.Spec.Unschedulable != want || tainted != want {
			t.Errorf("Cordon(%v) = %v, %v, want it so, and the taint", want, n, err)
		}
		store.Heal()
	}
}
