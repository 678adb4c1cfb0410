package objects_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/objectstest"
)

// spoil stores a value that is not an object.
func spoil(t *testing.T, store *objectstest.Store, key objects.Key) {
	t.Helper()
	if err := store.Edit(key, func([]byte) []byte { return []byte(`{"kind":"Node"`) }); err != nil {
		t.Fatal(err)
	}
}

func TestAnUnreadableNodeIsNamedAndLeftAsItIs(t *testing.T) {
	store := objectstest.New()
	a := newAgent(t, store, here)
	a.registered()
	for _, name := range []string{"m", "o"} {
		if _, err := a.Register(t.Context(), newNode(name, here), controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	spoil(t, store, objects.Key{Kind: objects.Node, Node: "n"})
	version := func() objects.Version {
		o, err := store.Get(t.Context(), objects.Key{Kind: objects.Node, Node: "n"})
		if err != nil {
			t.Fatal(err)
		}
		return o.Version
	}
	before := version()
	for call, run := range map[string]func() error{
		"Node()":         func() error { _, err := a.Node(t.Context(), "n"); return err },
		"Register()":     func() error { _, err := a.register(controlplane.RegisterOptions{}); return err },
		"UpdateStatus()": func() error { _, err := a.UpdateStatus(t.Context(), newNode("n", here)); return err },
		"Cordon()":       func() error { _, err := a.Cordon(t.Context(), "n", true, false); return err },
		"Leave()":        func() error { return a.Leave(t.Context(), "n", here) },
		"WatchNode()":    func() error { return a.WatchNode(t.Context(), "n", make(chan *corev1.Node)) },
		"Nodes()":        func() error { _, err := a.Nodes(t.Context()); return err },
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), "nodes/n") || !strings.Contains(err.Error(), "fix or delete it") {
			t.Errorf("%s = %v, want an error that names the key and the hint", call, err)
		}
	}
	if after := version(); after != before {
		t.Errorf("version of what cannot be read = %s, want %s as before", after, before)
	}
	nodes, _ := a.Nodes(t.Context())
	if len(nodes) != 2 || nodes[0].Name != "m" || nodes[1].Name != "o" {
		t.Errorf("Nodes() beside one that cannot be read = %d, want the two others", len(nodes))
	}
}

func TestAnUnreadableLeaseIsReplacedByTheNodesOwn(t *testing.T) {
	store := objectstest.New()
	a := newAgent(t, store, here)
	a.renewed()
	spoil(t, store, objects.Key{Kind: objects.Lease, Node: "n"})
	lease := newLease(t, "n", here)
	if _, err := a.RenewLease(t.Context(), lease); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("RenewLease() before it is known whose the node is = %v, want %v", err, controlplane.ErrConflict)
	}
	node := a.registered()
	controlplane.SetOwner(lease, "n", node.UID)
	if _, err := a.RenewLease(t.Context(), lease); err != nil {
		t.Errorf("RenewLease() of the node's own = %v, want no error", err)
	}
	if _, err := a.Lease(t.Context(), "n"); err != nil {
		t.Errorf("Lease() = %v, want it readable again", err)
	}
}

func TestANodeThatAPersonWroteGetsAUID(t *testing.T) {
	store := objectstest.New()
	if _, err := store.Put(t.Context(), objects.Key{Kind: objects.Node, Node: "n"}, objects.Put{Value: []byte(`{"metadata":{"name":"n","labels":{"theirs":"kept"}}}`)}); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, store, here)
	node, err := a.register(controlplane.RegisterOptions{AdoptOnly: true})
	if err != nil || node.UID == "" || node.CreationTimestamp.IsZero() || node.Labels["theirs"] != "kept" {
		t.Errorf("Register() = %v, %v, want it adopted, with a UID", node, err)
	}
}

// FuzzValues stores any value, as another client can. It is either read, or named in the error.
func FuzzValues(f *testing.F) {
	f.Add([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","annotations":{"hostler.io/owned":"{}"}},"spec":{"taints":[{}]},"status":{"conditions":[{}]}}`))
	f.Add([]byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"n"},"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}`))
	f.Add([]byte(`{"kind":"Event","apiVersion":"v1","metadata":{"name":"n"},"lastTimestamp":null}`))
	f.Add([]byte(`null`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, value []byte) {
		store := objectstest.New()
		for _, key := range []objects.Key{{Kind: objects.Node, Node: "n"}, {Kind: objects.Lease, Node: "n"}, {Kind: objects.Event, Node: "n", Name: "n"}} {
			if _, err := store.Put(t.Context(), key, objects.Put{Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		a := newAgent(t, store, here)
		for key, run := range map[string]func() error{
			"nodes/n":    func() error { _, err := a.Node(t.Context(), "n"); return err },
			"leases/n":   func() error { _, err := a.Lease(t.Context(), "n"); return err },
			"events/n/n": func() error { _, err := a.Events(t.Context()); return err },
		} {
			if err := run(); err != nil && !strings.Contains(err.Error(), key) {
				t.Errorf("reading %s = %v, want an error that names it", key, err)
			}
		}
		node, err := a.register(controlplane.RegisterOptions{Takeover: true})
		if err != nil {
			return
		}
		if node.Name != "n" || node.UID == "" || controlplane.IdentityOf(node) != here {
			t.Errorf("Register() over %s = %v, want this machine's node", value, node)
		}
		if _, err := a.UpdateStatus(t.Context(), newNode("n", here)); err != nil {
			t.Errorf("UpdateStatus() over %s = %v, want no error", value, err)
		}
		lease := newLease(t, "n", here)
		controlplane.SetOwner(lease, "n", node.UID)
		if _, err := a.RenewLease(t.Context(), lease); err != nil && !errors.Is(err, controlplane.ErrConflict) {
			t.Errorf("RenewLease() over %s = %v, want no error or a conflict", value, err)
		}
	})
}

// A value of a few MiB may have entries that take many times as much when they are decoded.
func TestManySmallValuesAreNotDecoded(t *testing.T) {
	store := objectstest.New()
	a := newAgent(t, store, here)
	a.registered()
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		if _, err := a.Register(t.Context(), newNode(name, here), controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	fill := func(name string, values int) {
		t.Helper()
		text := `{"kind":"Node","apiVersion":"v1","metadata":{"name":"` + name + `"},"status":{"images":[` + strings.Repeat("{},", values) + `{}]}}`
		if err := store.Edit(objects.Key{Kind: objects.Node, Node: name}, func([]byte) []byte { return []byte(text) }); err != nil {
			t.Fatal(err)
		}
	}
	fill("n", 1_300_000)
	if _, err := a.Node(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "nodes/n: the stored value cannot be read: it has more than 1 MiB: fix or delete it") {
		t.Errorf("Node() = %v, want an error that names the key and the hint", err)
	}
	for _, name := range names[:5] { // each of these can be read alone
		fill(name, 60_000)
	}
	var seen []string
	err := a.Fleet(t.Context(), func(node *corev1.Node, _ *coordinationv1.Lease) error {
		seen = append(seen, node.Name)
		return nil
	})
	if !errors.Is(err, controlplane.ErrIncomplete) || !slices.Equal(seen, names) {
		t.Errorf("Fleet() = %v after %q, want %q, and that it is incomplete", err, seen, names)
	}
}

// TestANodeThatNobodyCouldReadIsNotStored has a Node with more taints than are read.
func TestANodeThatNobodyCouldReadIsNotStored(t *testing.T) {
	store := objectstest.New()
	a := newAgent(t, store, here)
	node := newNode("n", here)
	node.Spec.Taints = slices.Repeat([]corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}, controlplane.MostEntries+1)
	if _, err := a.Register(t.Context(), node, controlplane.RegisterOptions{}); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("Register() = %v, want ErrInvalid", err)
	}
	if _, err := a.Node(t.Context(), "n"); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("Node() = %v, want that it is not stored", err)
	}
}
