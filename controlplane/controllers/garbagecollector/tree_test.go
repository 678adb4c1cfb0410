package garbagecollector_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// written is a tree, with a dash for each step down.
func written(tree garbagecollector.Tree) string {
	var list []string
	for _, b := range tree.Branches {
		text := strings.Repeat("-", b.Depth) + strings.TrimPrefix(b.Name, "things/") + " " + string(b.Fate)
		if b.Note != "" {
			text += " (" + b.Note + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// TestATreeIsWhatADeletionDoes compares each tree with what the collector then leaves.
func TestATreeIsWhatADeletionDoes(t *testing.T) {
	for name, c := range map[string]struct {
		things []string
		policy metav1.DeletionPropagation
		before func(r rig)
		want   string
	}{
		"an object alone": {[]string{"a", "b"}, background, nil, "a deleted"},
		"a tree":          {[]string{"a", "b <- a", "c <- b", "d <- a", "e"}, background, nil, "a deleted; -b deleted; --c deleted; -d deleted"},
		"other owners": {
			[]string{"a", "b", "c <- a, b", "d <- c"}, background, nil, "a deleted; -c kept (owner things/b remains)",
		},
		"all owners in the tree": {
			[]string{"a", "b <- a", "c <- a", "d <- b, c"}, background, nil, "a deleted; -b deleted; --d deleted; -c deleted",
		},
		"an owner that goes only after another": {
			[]string{"a", "b <- a, c", "c <- d", "d <- a"}, background, nil, "a deleted; -b deleted; -d deleted; --c deleted",
		},
		"a circle":               {[]string{"a <- c", "b <- a", "c <- b"}, background, nil, "a deleted; -b deleted; --c deleted"},
		"a namespace":            {[]string{"a", "n/b <- a", "n/c <- n/b"}, background, nil, "a deleted; -n/b deleted; --n/c deleted"},
		"orphan":                 {[]string{"a", "b <- a", "c <- b", "d <- a, e", "e"}, orphan, nil, "a deleted; -b orphaned; -d kept (owner things/e remains)"},
		"orphan, and none there": {[]string{"a"}, orphan, nil, "a deleted"},
		"foreground": {
			[]string{"a", "b <- a!", "c <- b!", "d <- a"}, foreground, nil, "a deleted; -b deleted (before its owner); --c deleted (before its owner); -d deleted",
		},
		"foreground with other owners": {[]string{"a", "b", "c <- a!, b"}, foreground, nil, "a deleted; -c kept (owner things/b remains)"},
		"a dependent with an orphan finalizer": {
			[]string{"a", "b <- a", "c <- b"},
			background, func(r rig) { r.finalizers("b", metav1.FinalizerOrphanDependents) },
			"a deleted; -b deleted; --c orphaned",
		},
		"an orphan finalizer and another owner that goes": {
			[]string{"a", "b <- a", "c <- a, b"},
			background, func(r rig) { r.finalizers("b", metav1.FinalizerOrphanDependents) },
			"a deleted; -b deleted; --c orphaned (deleted instead if its other owners are deleted later)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rig{t, memory.New(memory.Options{EndsLeases: true})}
				r.put(c.things...)
				if c.before != nil {
					c.before(r)
				}
				gc, _ := r.collector("a")
				r.settle()
				tree, err := gc.Tree(t.Context(), garbagecollector.Key{Kind: store.Objects.Name, Name: "things/a"}, c.policy)
				if got := written(tree); err != nil || got != c.want {
					t.Errorf("Tree() = %s, %v, want %s", got, err, c.want)
				}
				before := r.things()
				if err := r.store.Delete(t.Context(), store.Objects, "things/a", store.Preconditions{UID: tree.UID, Version: tree.Version}, c.policy); err != nil {
					t.Fatal(err)
				}
				r.settle()
				left, fates := r.names(), map[string]garbagecollector.Fate{}
				for _, b := range tree.Branches {
					fates[strings.TrimPrefix(b.Name, "things/")] = b.Fate
				}
				for thing := range strings.SplitSeq(before, "; ") {
					own, _, _ := strings.Cut(thing, " <- ")
					if stays := slices.Contains(left, own); stays == (fates[own] == garbagecollector.Deleted) {
						t.Errorf("%s was to be %q, and is left: %t", own, fates[own], stays)
					}
				}
			})
		})
	}
}

// names are those of the stored things.
func (r rig) names() []string {
	var list []string
	for thing := range strings.SplitSeq(r.things(), "; ") {
		own, _, _ := strings.Cut(thing, " <- ")
		list = append(list, own)
	}
	return list
}

func TestATreeSaysWhatADeletionWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig{t, memory.New(memory.Options{EndsLeases: true})}
		r.put("a", "b <- a!", "c <- b, d", "d")
		gc, stop := r.collector("a")
		r.settle()
		r.finalizers("b", "example.com/f")
		r.del("b", background)
		r.settle()
		key := garbagecollector.Key{Kind: store.Objects.Name, Name: "things/a"}
		const want = "a deleted; -b deleted (before its owner; once other programs have removed its finalizers: example.com/f; its deletion was requested before); --c kept (owner things/d remains)"
		if tree, err := gc.Tree(t.Context(), key, foreground); err != nil || written(tree) != want {
			t.Errorf("Tree() = %s, %v, want %s", written(tree), err, want)
		}
		key.Name = "things/none"
		if _, err := gc.Tree(t.Context(), key, background); !errors.Is(err, controlplane.ErrNotFound) {
			t.Errorf("Tree() of no object = %v, want ErrNotFound", err)
		}
		stop()
		key.Name = "things/a"
		cold := garbagecollector.New(r.store, &store.Contact{}, slogDiscard)
		cold.Follows()
		if _, err := cold.Tree(t.Context(), key, background); !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("Tree() before a list = %v, want ErrUnavailable", err)
		}
	})
}

// TestTheTreeOfANodeHasItsLease has a Lease that was put after the list: only its deletion is followed.
func TestTheTreeOfANodeHasItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig{t, memory.New(memory.Options{EndsLeases: true})}
		gc, _ := r.collector("a")
		r.settle()
		r.store.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}})
		r.store.PutRaw(store.Leases, "n", []byte(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"kube-node-lease","name":"n","uid":"l","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`))
		r.store.PutRaw(store.Events, "n/e", []byte(`{"apiVersion":"v1","kind":"Event","metadata":{"namespace":"default","name":"e","uid":"e"}}`))
		r.settle()
		tree, err := gc.Tree(t.Context(), garbagecollector.Key{Kind: store.Nodes.Name, Name: "n"}, background)
		var got []string
		for _, b := range tree.Branches {
			got = append(got, b.String()+" "+string(b.Fate))
		}
		if want := []string{"nodes/n deleted", "events/n/e deleted", "leases/n deleted"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("Tree() = %q, %v, want %q", got, err, want)
		}
	})
}

// The owner is reported, too.
func TestAnOwnerInAnotherNamespaceIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig{t, memory.New(memory.Options{EndsLeases: true})}
		r.put("n/a", "b <- n/a", "m/c <- n/a", "d <- e", "e")
		var got []string
		r.collector("a", func(c *garbagecollector.Controller) {
			c.OnRefused = func(refused garbagecollector.Refusal) { got = append(got, refused.String()+": "+refused.Why) }
		})
		r.settle()
		r.edit("b", func(o store.Object) { o.SetLabels(map[string]string{"changed": "yes"}) })
		r.settle()
		slices.Sort(got)
		want := []string{
			"things/b: owner things/a with UID uid-of-n/a: it is in namespace n; an object without a namespace cannot have such an owner",
			"things/m/c: owner things/a with UID uid-of-n/a: it is in namespace n; an owner in another namespace counts as absent",
			"things/n/a: things/b refers to this owner: it is in namespace n; an object without a namespace cannot have such an owner",
			"things/n/a: things/m/c refers to this owner: it is in namespace n; an owner in another namespace counts as absent",
		}
		if !slices.Equal(got, want) {
			t.Errorf("reported = %q, want %q", got, want)
		}
		if left := r.things(); left != "b <- n/a; d <- e; e; n/a" {
			t.Errorf("stored = %q", left)
		}
	})
}
