package garbagecollector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// The policies of a deletion.
const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

// rig is a fleet in a store as etcd, in a bubble of synctest.
type rig struct {
	*testing.T
	store *memory.Store
}

// collector runs a collector, as a server does.
func (r rig) collector(name string, with ...func(*garbagecollector.Controller)) (c *garbagecollector.Controller, stop func()) {
	run := collect(r, r.store, name, with...)
	return run.Controller, run.stop
}

// settle waits until a collector has done everything.
func (r rig) settle() {
	time.Sleep(5 * time.Minute)
	synctest.Wait()
}

// uid is the UID that tests give to an object.
func uid(name string) types.UID { return types.UID("uid-of-" + name) }

// put stores things, each such as "name", "name <- owner, owner!" or "namespace/name <- owner". The
// deletion of an owner with ! waits for the thing in the foreground, and owner@x has another UID.
func (r rig) put(things ...string) {
	for _, text := range things {
		name, owners, _ := strings.Cut(text, " <- ")
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Thing"}}
		o.Name, o.UID = name, uid(name)
		if namespace, own, found := strings.Cut(name, "/"); found {
			o.Namespace, o.Name = namespace, own
		}
		for owner := range strings.SplitSeq(owners, ", ") {
			if owner == "" {
				continue
			}
			owner, block := strings.CutSuffix(owner, "!")
			owner, other, _ := strings.Cut(owner, "@")
			kind, own, found := strings.Cut(owner, ":")
			if !found {
				kind, own = "Thing", owner
			}
			ref := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: kind, Name: own[strings.Index(own, "/")+1:], UID: uid(own + other)}
			if kind == "Node" {
				ref.APIVersion = "v1"
			}
			if block {
				ref.BlockOwnerDeletion = &block
			}
			o.OwnerReferences = append(o.OwnerReferences, ref)
		}
		r.write(o)
	}
}

// write stores an object as a person does.
func (r rig) write(o *metav1.PartialObjectMetadata) {
	r.Helper()
	value, err := json.Marshal(o)
	if err != nil {
		r.Fatal(err)
	}
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + o.Name
	}
	r.store.PutRaw(store.Objects, "things/"+name, value)
}

// edit changes the metadata of a thing.
func (r rig) edit(name string, edit func(o store.Object)) {
	r.Helper()
	_, err := r.store.Update(r.Context(), store.Objects, "things/"+name, store.Preconditions{}, func(o store.Object) error {
		edit(o)
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
}

// finalizers gives a thing finalizers of another program.
func (r rig) finalizers(name string, finalizers ...string) {
	r.Helper()
	r.edit(name, func(o store.Object) { o.SetFinalizers(finalizers) })
}

// del requests the deletion of a thing.
func (r rig) del(name string, policy metav1.DeletionPropagation) {
	r.Helper()
	if err := r.store.Delete(r.Context(), store.Objects, "things/"+name, store.Preconditions{}, policy); err != nil {
		r.Fatal(err)
	}
}

// things are the stored things, in the notation of put, with + before those that are being deleted.
func (r rig) things() string {
	seen := &listing{objects: map[string]store.Object{}, done: make(chan struct{})}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	go func() { _ = r.store.Follow(ctx, store.Objects, store.AllChanges, seen) }()
	<-seen.done
	return inOrder(seen.objects)
}

// inOrder has objects in the notation of put, with + before those that are being deleted.
func inOrder(objects map[string]store.Object) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		o := objects[key]
		text := strings.TrimPrefix(key, "things/")
		if o.GetDeletionTimestamp() != nil {
			text = "+" + text
		}
		var owners []string
		for _, ref := range o.GetOwnerReferences() {
			owners = append(owners, strings.TrimPrefix(string(ref.UID), "uid-of-"))
		}
		if len(owners) > 0 {
			text += " <- " + strings.Join(owners, ", ")
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// listing takes one list.
type listing struct {
	objects map[string]store.Object
	done    chan struct{}
}

func (l *listing) Begin()                               {}
func (l *listing) Set(name string, object store.Object) { l.objects[name] = object }
func (l *listing) Unreadable(string, error)             {}
func (l *listing) Delete(string)                        {}
func (l *listing) Synced()                              { close(l.done) }

// TestRules has a row for each rule in docs/explanation/garbage-collection.md.
func TestRules(t *testing.T) {
	page := rulesOfThePage(t)
	for name, c := range map[string]struct {
		things []string
		act    func(r rig)
		want   string
	}{
		"an object without owners stays":                            {[]string{"a"}, nil, "a"},
		"an object with an owner stays":                             {[]string{"a", "b <- a"}, nil, "a; b <- a"},
		"an object is deleted with its owner":                       {[]string{"a", "b <- a"}, func(r rig) { r.del("a", background) }, ""},
		"dependents of dependents are deleted, too":                 {[]string{"a", "b <- a", "c <- b", "d <- c", "e"}, func(r rig) { r.del("a", background) }, "e"},
		"an owner that never existed counts as absent":              {[]string{"b <- a"}, nil, ""},
		"an owner with another UID counts as absent":                {[]string{"a", "b <- a@x"}, nil, "a"},
		"an owner of another type counts as absent":                 {[]string{"a", "b <- Other:a"}, nil, "a"},
		"an owner may be in the same namespace":                     {[]string{"n/a", "n/b <- n/a"}, nil, "n/a; n/b <- n/a"},
		"an owner may have no namespace":                            {[]string{"a", "n/b <- a"}, nil, "a; n/b <- a"},
		"an owner in another namespace counts as absent":            {[]string{"m/a", "n/b <- m/a"}, nil, "m/a"},
		"an object without namespace stays with a namespaced owner": {[]string{"n/a", "b <- n/a"}, nil, "b <- n/a; n/a"},
		"an object is deleted with the last of several owners": {
			[]string{"a", "b", "c <- a, b"}, func(r rig) { r.del("a", background); r.del("b", background) }, "",
		},
		"with another owner, only the reference is removed": {
			[]string{"a", "b", "c <- a, b"}, func(r rig) { r.del("a", background) }, "b; c <- b",
		},
		"an owner may be removed with etcdctl": {
			[]string{"a", "b <- a"}, func(r rig) { r.store.Remove(store.Objects, "things/a") }, "",
		},
		"foreground: dependents with blockOwnerDeletion are deleted first": {
			[]string{"a", "b <- a!"}, func(r rig) {
				r.finalizers("b", "example.com/f")
				r.del("a", foreground)
			}, "+a; +b <- a",
		},
		"foreground: the owner last": {
			[]string{"a", "b <- a!"}, func(r rig) {
				r.finalizers("b", "example.com/f")
				r.del("a", foreground)
				r.settle()
				r.finalizers("b")
			}, "",
		},
		"foreground: other dependents do not hold the owner": {
			[]string{"a", "b <- a"}, func(r rig) {
				r.finalizers("b", "example.com/f")
				r.del("a", foreground)
			}, "+b <- a",
		},
		"foreground: their own dependents before": {
			[]string{"a", "b <- a!", "c <- b!"}, func(r rig) {
				r.finalizers("c", "example.com/f")
				r.del("a", foreground)
			}, "+a; +b <- a; +c <- b",
		},
		"foreground: a circle of owners is deleted":               {[]string{"a <- c!", "b <- a!", "c <- b!"}, func(r rig) { r.del("a", foreground) }, ""},
		"foreground: two objects that own each other are deleted": {[]string{"a <- b!", "b <- a!"}, func(r rig) { r.del("a", foreground); r.del("b", foreground) }, ""},
		"foreground: another owner keeps a dependent":             {[]string{"a", "b", "c <- a, b!"}, func(r rig) { r.del("b", foreground) }, "a; c <- a"},
		"orphan: references are removed first":                    {[]string{"a", "b <- a", "c <- a, d", "d"}, func(r rig) { r.del("a", orphan) }, "b; c <- d; d"},
		"orphan: dependents of dependents keep their references":  {[]string{"a", "b <- a", "c <- b"}, func(r rig) { r.del("a", orphan) }, "b; c <- b"},
		"orphan: dependents being deleted lose references, too": {[]string{"a", "b <- a"}, func(r rig) {
			r.finalizers("b", "example.com/f")
			r.del("b", background)
			r.del("a", orphan)
		}, "+b"},
		"a finalizer of another program holds an object": {[]string{"a", "b <- a"}, func(r rig) {
			r.finalizers("b", "example.com/f")
			r.del("a", background)
		}, "+b <- a"},
		"an object is deleted with its last finalizer": {[]string{"a"}, func(r rig) {
			r.finalizers("a", "example.com/f", "example.com/g")
			r.del("a", background)
			r.finalizers("a", "example.com/g")
			r.finalizers("a")
		}, ""},
		"the last finalizer may be removed with etcdctl": {nil, func(r rig) {
			now := metav1.Now()
			o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Thing"}}
			o.Name, o.DeletionTimestamp = "a", &now
			r.write(o)
		}, ""},
		"the finalizer orphan of a dependent orphans its dependents": {[]string{"a", "b <- a", "c <- b"}, func(r rig) {
			r.finalizers("b", metav1.FinalizerOrphanDependents)
			r.del("a", background)
		}, "c"},
		"a Node may be an owner": {[]string{"a <- Node:n", "b <- Node:n@x"}, func(r rig) {
			r.store.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid("n")}})
		}, "a <- n"},
		"an object may have 120 absent owners": {[]string{"a <- " + many(120), "b <- c, " + many(120), "c"}, nil, "b <- c; c"},
	} {
		if !page[name] {
			t.Errorf("docs/explanation/garbage-collection.md lacks the rule: %s", name)
		}
		delete(page, name)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rig{t, memory.New(memory.Options{EndsLeases: true})}
				r.put(c.things...)
				if c.act != nil && strings.Contains(name, "Node") {
					c.act(r)
				}
				gc, _ := r.collector("a")
				r.settleIf(c.act != nil)
				if c.act != nil && !strings.Contains(name, "Node") {
					c.act(r)
				}
				r.settle()
				if got := r.things(); got != c.want {
					t.Errorf("stored = %q, want %q; facts = %+v", got, c.want, gc.Report().Facts)
				}
			})
		})
	}
	for rule := range page {
		t.Errorf("docs/explanation/garbage-collection.md has a rule without a row: %s", rule)
	}
}

// rulesOfThePage are the rules that docs/explanation/garbage-collection.md names.
func rulesOfThePage(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../../docs/explanation/garbage-collection.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```text\n")
	block, _, _ = strings.Cut(block, "```")
	rules := map[string]bool{}
	for line := range strings.Lines(block) {
		rules[strings.TrimSpace(line)] = true
	}
	return rules
}

func (r rig) settleIf(wait bool) {
	if wait {
		r.settle()
	}
}

func many(n int) string {
	var owners []string
	for i := range n {
		owners = append(owners, fmt.Sprintf("gone%03d", i))
	}
	return strings.Join(owners, ", ")
}

// TestANodeTakesWhatItOwnsAlong checks all that agents write.
func TestANodeTakesWhatItOwnsAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig{t, memory.New(memory.Options{EndsLeases: true})}
		gc, _ := r.collector("a")
		r.settle()
		for _, name := range []string{"n", "m"} {
			node := r.store.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			owners := fmt.Sprintf(`[{"apiVersion":"v1","kind":"Node","name":%q,"uid":%q}]`, name, node.GetUID())
			r.store.PutRaw(store.Leases, name, fmt.Appendf(nil, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"kube-node-lease","name":%q,"uid":"l%s","ownerReferences":%s}}`, name, name, owners))
			r.store.PutRaw(store.Events, name+"/e", []byte(`{"apiVersion":"v1","kind":"Event","metadata":{"namespace":"default","name":"e","uid":"e"}}`))
			r.store.PutRaw(store.Objects, "pods/"+name+"/shop/web", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"web","uid":"p%s","ownerReferences":%s}}`, name, owners))
		}
		r.store.PutRaw(store.Events, "unregistered/e", []byte(`{"apiVersion":"v1","kind":"Event","metadata":{"namespace":"default","name":"e","uid":"e"}}`))
		r.settle()
		r.store.Remove(store.Nodes, "n")
		r.settle()
		for _, c := range []struct {
			kind  store.Kind
			name  string
			stays bool
		}{
			{store.Leases, "n", false},
			{store.Events, "n/e", false},
			{store.Objects, "pods/n/shop/web", false},
			{store.Leases, "m", true},
			{store.Events, "m/e", true},
			{store.Objects, "pods/m/shop/web", true},
			{store.Events, "unregistered/e", true},
		} {
			_, err := r.store.Get(t.Context(), c.kind, c.name)
			if gone := errors.Is(err, controlplane.ErrNotFound); gone == c.stays {
				t.Errorf("%s %s: %v, want it to stay: %v; facts = %+v", c.kind.Name, c.name, err, c.stays, gc.Report())
			}
		}
	})
}
