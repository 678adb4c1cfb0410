package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// raw stores a thing of kind v1/Thing or another one, with references as they are given in JSON.
func (r rig) raw(kind store.Kind, name, gvk, meta string) {
	r.store.PutRaw(kind, name, fmt.Appendf(nil, `{%s,"metadata":{%s}}`, gvk, meta))
}

const (
	thing = `"apiVersion":"example.com/v1","kind":"Thing"`
	pod   = `"apiVersion":"v1","kind":"Pod"`
	lease = `"apiVersion":"coordination.k8s.io/v1","kind":"Lease"`
	event = `"apiVersion":"v1","kind":"Event"`
)

// owned is the metadata of an object with owners in JSON.
func owned(name, namespace, owners string) string {
	return fmt.Sprintf(`"name":%q,"namespace":%q,"uid":"uid-of-%s","ownerReferences":[%s]`, name, namespace, name, owners)
}

// reference is an owner in JSON.
func reference(version, kind, name string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q}`, version, kind, name, uid(name))
}

func (r rig) node(name string) {
	r.store.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid(name)}})
}

func (r rig) stored(kind store.Kind, name string, want bool) store.Object {
	r.Helper()
	o, err := r.store.Get(r.Context(), kind, name)
	if got := err == nil; got != want || err != nil && !errors.Is(err, controlplane.ErrNotFound) {
		r.Errorf("Get(%s) = %v, want it stored: %v", kind.Key(name), err, want)
	}
	return o
}

// TestOddObjects has objects that people write by mistake, and that the collector sees late.
func TestOddObjects(t *testing.T) {
	for name, act := range map[string]func(r rig){
		"a reference without type, name or UID is no absent owner": func(r rig) {
			for i, ref := range []string{
				reference("example.com/v1", "", "gone"), reference("", "Thing", "gone"), reference("a/b/c", "Thing", "gone"),
				reference("example.com/v1", "Thing", ""), reference("example.com/v1", "Thing", "x/gone"), `{"apiVersion":"v1","kind":"Node","name":"n"}`,
			} {
				r.raw(store.Objects, fmt.Sprintf("things/o%d", i), thing, owned(fmt.Sprintf("o%d", i), "", ref))
			}
			r.node("n")
			r.settle()
			r.store.Remove(store.Nodes, "n")
			r.settle()
			r.want("o0 <- gone; o1 <- gone; o2 <- gone; o3 <- ; o4 <- x/gone; o5 <- ")
		},
		"an owner of a type with namespaces, and a dependent without": func(r rig) {
			r.raw(store.Objects, "things/a", thing, owned("a", "", reference("v1", "Pod", "p")))
			r.raw(store.Objects, "things/b", thing, owned("b", "", reference("coordination.k8s.io/v1", "Lease", "l")))
			r.raw(store.Objects, "things/c", thing, owned("c", "", reference("v1", "Event", "e")))
			r.settle()
			r.want("a <- p; b <- l; c <- e")
		},
		"two owners with one UID": func(r rig) {
			r.put("a", "b <- a, Other:a")
			r.settle()
			r.want("a; b <- a")
		},
		"an owner that cannot be read, below a name that is not known": func(r rig) {
			r.store.PutRaw(store.Objects, "pods/n/shop/p", []byte("{"))
			r.raw(store.Objects, "things/shop/a", thing, owned("a", "shop", reference("v1", "Pod", "p")))
			r.settle()
			r.want("shop/a <- p")
		},
		"what a host writes below its own name delays nobody": func(r rig) {
			const blocks = `{"apiVersion":"v1","kind":"Node","name":"n","uid":%q,"blockOwnerDeletion":true}`
			r.node("n")
			foreign := fmt.Sprintf(blocks, uid("n"))
			r.raw(store.Objects, "pods/mallory/shop/p", pod, owned("p", "shop", foreign)+`,"finalizers":["mallory/forever"]`)
			r.raw(store.Events, "mallory/e", event, owned("e", "default", foreign)+`,"finalizers":["mallory/forever"]`)
			r.raw(store.Leases, "mallory", lease, owned("mallory", "kube-node-lease", foreign)+`,"finalizers":["mallory/forever"]`)
			ofPeople := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","name":"d","uid":%q,"blockOwnerDeletion":true}`, uid("d"))
			r.raw(store.Nodes, "mallory", `"apiVersion":"v1","kind":"Node"`, owned("mallory", "", foreign+","+ofPeople)+`,"finalizers":["mallory/forever"]`)
			r.store.PutRaw(store.Nodes, "mallory2", []byte("{"))
			r.store.PutRaw(store.Objects, "pods/mallory/shop/thing", []byte("{"))
			r.store.PutRaw(store.Objects, "pods/mallory/n", []byte("{"))
			r.store.PutRaw(store.Events, "mallory/broken", []byte("{"))
			r.store.PutRaw(store.Events, "mallory/", []byte("{")) // as a surplus is reported
			r.store.PutRaw(store.Objects, "pods/mallory/", []byte("{"))
			r.put("a", "b <- a", "c <- thing", "d")
			r.settle()
			r.del("d", foreground)
			if err := r.store.Delete(r.Context(), store.Nodes, "n", store.Preconditions{}, foreground); err != nil {
				r.Fatal(err)
			}
			r.del("a", orphan)
			r.settle()
			r.stored(store.Nodes, "n", false)
			r.stored(store.Nodes, "mallory", true)
			r.want("pods/mallory/shop/p <- n; b")
		},
		"what a host deletes below its own name is no other host's pod": func(r rig) {
			for _, p := range []struct{ name, finalizer string }{{"f", metav1.FinalizerDeleteDependents}, {"o", metav1.FinalizerOrphanDependents}} {
				r.raw(store.Objects, "things/shop/of-"+p.name, thing, owned("of-"+p.name, "shop", reference("v1", "Pod", p.name)))
				r.raw(store.Objects, "pods/mallory/shop/"+p.name, pod, owned(p.name, "shop", "")+fmt.Sprintf(`,"finalizers":[%q],"deletionTimestamp":"2026-01-01T00:00:00Z"`, p.finalizer))
				r.raw(store.Objects, "pods/n/shop/"+p.name, pod, owned(p.name, "shop", ""))
			}
			r.settle()
			r.want("+pods/mallory/shop/o; pods/n/shop/f; pods/n/shop/o; shop/of-f <- f; shop/of-o <- o")
		},
		"a pod whose UID looks like a Node is no Node that was deleted": func(r rig) {
			r.raw(store.Events, "n/e", event, owned("e", "default", "")) // of a host that could never register
			r.raw(store.Objects, "pods/mallory/shop/p", pod, `"name":"p","namespace":"shop","uid":"nodes/n"`)
			r.settle()
			r.store.Remove(store.Objects, "pods/mallory/shop/p")
			r.settle()
			r.stored(store.Events, "n/e", true)
		},
		"an owner that is stored where its type does not belong": func(r rig) {
			r.raw(store.Objects, "thing/a", thing, `"name":"a","uid":"uid-of-a"`)
			r.put("b <- a", "c <- other")
			r.settle()
			r.want("b <- a")
			r.store.Remove(store.Objects, "thing/a")
			r.settle()
			r.want("")
		},
		"owners without UID are not waited for": func(r rig) {
			block := `{"apiVersion":"example.com/v1","kind":"Thing","name":%q,"blockOwnerDeletion":true}`
			for _, owner := range []string{"f", "o"} {
				r.raw(store.Objects, "things/"+owner, thing, fmt.Sprintf(`"name":%q`, owner))
				r.raw(store.Objects, "things/of-"+owner, thing, owned("of-"+owner, "", fmt.Sprintf(block, owner)))
			}
			r.settle()
			r.del("f", foreground)
			r.del("o", orphan)
			r.settle()
			r.want("of-f <- ; of-o <- ")
		},
		"orphan: an object that cannot be read may be a dependent": func(r rig) {
			r.put("a")
			r.store.PutRaw(store.Objects, "things/b", []byte("{"))
			r.settle()
			r.del("a", orphan)
			r.settle()
			r.put("b <- a")
			r.settle()
			r.want("b")
		},
		"orphan: a dependent that is created while another finalizer holds the owner": func(r rig) {
			r.put("a", "b <- a")
			r.finalizers("a", held)
			r.del("a", orphan)
			r.settle()
			r.put("c <- a")
			r.finalizers("a", metav1.FinalizerOrphanDependents)
			r.settle()
			r.want("b; c")
		},
		"orphan: the owner becomes one that is deleted in the background": func(r rig) {
			r.put("a", "b")
			r.settle()
			r.store.Inject(memory.Update, memory.Fault{Delay: time.Second})
			r.del("a", orphan)
			time.Sleep(500 * time.Millisecond)
			r.put("b <- a")
			r.del("a", background)
			r.settle()
			r.want("")
		},
		"foreground: the owner becomes one that is orphaned": func(r rig) {
			r.put("a", "b <- a", "c <- a!")
			r.finalizers("c", held)
			r.settle()
			r.del("a", foreground)
			r.store.Inject(memory.Delete, memory.Fault{Delay: time.Second})
			time.Sleep(500 * time.Millisecond)
			r.finalizers("a", metav1.FinalizerOrphanDependents)
			r.store.Heal()
			r.settle()
			r.want("b; c")
		},
		"foreground: a dependent of the dependent appears late": func(r rig) {
			r.put("a", "b <- a!")
			r.settle()
			r.del("a", foreground)
			r.store.Inject(memory.Delete, memory.Fault{Err: controlplane.ErrUnavailable, Times: 1})
			time.Sleep(500 * time.Millisecond)
			r.put("c <- b!")
			r.finalizers("c", held)
			r.settle()
			r.want("+a; +b <- a; +c <- b")
		},
		"an owner that is removed while nothing can be followed": func(r rig) {
			r.put("a", "b <- a")
			r.settle()
			r.store.Inject(memory.Follow, memory.Fault{Err: controlplane.ErrUnavailable})
			r.settle()
			r.store.Remove(store.Objects, "things/a")
			r.store.Heal()
			r.settle()
			r.want("")
		},
		"a leader that is deposed before its write arrives": func(r rig) {
			r.put("a", "b <- a")
			r.settle()
			r.store.Inject(memory.Delete, memory.Fault{Delay: time.Second})
			r.store.Remove(store.Objects, "things/a")
			time.Sleep(500 * time.Millisecond)
			r.store.Depose(garbagecollector.Name)
			r.store.Inject(memory.Elect, memory.Fault{Err: controlplane.ErrUnavailable})
			r.settle()
			r.want("b <- a")
			r.store.Heal()
			r.settle()
			r.want("")
		},
		"a pod is removed by its host while that exists": func(r rig) {
			r.node("n")
			deleting := `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
			r.put("a")
			r.raw(store.Objects, "pods/n/shop/p", pod, owned("p", "shop", reference("example.com/v1", "Thing", "gone"))+deleting)
			r.raw(store.Objects, "pods/gone/shop/q", pod, owned("q", "shop", reference("v1", "Node", "gone"))+deleting)
			r.settle()
			r.stored(store.Objects, "pods/n/shop/p", true)
			r.stored(store.Objects, "pods/gone/shop/q", false)
			r.store.Remove(store.Nodes, "n")
			r.settle()
			r.stored(store.Objects, "pods/n/shop/p", false)
		},
		"the Events of a Node that is registered again": func(r rig) {
			r.node("n")
			r.raw(store.Events, "n/e", event, `"name":"e","namespace":"default","uid":"e"`)
			r.settle()
			r.store.Inject(memory.Delete, memory.Fault{Delay: time.Second})
			r.store.Remove(store.Nodes, "n")
			time.Sleep(500 * time.Millisecond)
			r.node("n")
			r.settle()
			r.stored(store.Events, "n/e", true)
		},
		"the Lease of a Node that is orphaned": func(r rig) {
			r.node("n")
			r.settle() // the Lease is not listed
			r.raw(store.Leases, "n", lease, owned("n", corev1.NamespaceNodeLease, reference("v1", "Node", "n")))
			if err := r.store.Delete(r.Context(), store.Nodes, "n", store.Preconditions{}, orphan); err != nil {
				r.Fatal(err)
			}
			r.settle()
			r.stored(store.Nodes, "n", false)
			if l := r.stored(store.Leases, "n", true); l != nil && len(l.GetOwnerReferences()) > 0 {
				r.Errorf("owners of the Lease = %v, want none", l.GetOwnerReferences())
			}
		},
		"the Lease of a Node that was replaced": func(r rig) {
			r.node("n")
			r.settle()
			r.raw(store.Leases, "n", lease, owned("n", corev1.NamespaceNodeLease, reference("v1", "Node", "n")))
			r.store.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "another"}})
			r.settle()
			r.stored(store.Leases, "n", false)
		},
		"an owner that is a Lease": func(r rig) {
			r.settle()
			r.raw(store.Leases, "n", lease, owned("n", corev1.NamespaceNodeLease, ""))
			r.raw(store.Objects, "things/kube-node-lease/a", thing, owned("a", corev1.NamespaceNodeLease, reference("coordination.k8s.io/v1", "Lease", "n")))
			r.settle()
			r.stored(store.Objects, "things/kube-node-lease/a", true)
			if n := r.store.Calls(memory.Delete); n > 2 {
				r.Errorf("%d requests to delete what has an owner, want one or two", n)
			}
			r.store.Remove(store.Leases, "n")
			r.settle()
			r.stored(store.Objects, "things/kube-node-lease/a", false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rig{t, memory.New(memory.Options{EndsLeases: true})}
				r.collector("a")
				r.settle()
				act(r)
			})
		})
	}
}

// flooded is a store in which a host writes before each write of a server.
type flooded struct{ rig }

func (f flooded) flood() {
	f.node("mallory")
	f.raw(store.Leases, "mallory", lease, owned("mallory", "kube-node-lease", ""))
	f.raw(store.Events, "mallory/e", event, owned("e", "default", ""))
	f.raw(store.Objects, "pods/mallory/shop/p", pod, owned("p", "shop", ""))
}

// floodedStore is a Store that is flooded.
type floodedStore struct {
	*memory.Store
	flooded
}

// Update implements store.Store.
func (s floodedStore) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	s.flood()
	return s.Store.Update(ctx, kind, name, pre, edit)
}

// Delete implements store.Store.
func (s floodedStore) Delete(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, policy metav1.DeletionPropagation) error {
	s.flood()
	return s.Store.Delete(ctx, kind, name, pre, policy)
}

// TestAHostThatWritesAllTheTimeDelaysNoDeletion has deletions that end only if no dependent was created meanwhile.
func TestAHostThatWritesAllTheTimeDelaysNoDeletion(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{"foreground": foreground, "orphan": orphan} {
		t.Run(name, func(t *testing.T) {
			inStore(t, func(r rig) {
				collect(r, floodedStore{r.store, flooded{r}}, "a")
				r.node("n")
				r.put("a", "b", "c <- b")
				r.settle()
				r.del("a", policy)
				r.del("b", policy)
				if err := r.store.Delete(r.Context(), store.Nodes, "n", store.Preconditions{}, policy); err != nil {
					r.Fatal(err)
				}
				r.settle()
				r.stored(store.Nodes, "n", false)
				for _, name := range []string{"a", "b"} {
					r.stored(store.Objects, "things/"+name, false)
				}
			})
		})
	}
}

// slowList is a store whose lists take a second from one object to the next.
type slowList struct{ *memory.Store }

// Follow implements store.Store.
func (s slowList) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	tracker, _ := to.(store.Tracker)
	return s.Store.Follow(ctx, kind, scope, slowFollower{tracker})
}

type slowFollower struct{ store.Tracker }

// Set implements store.Follower.
func (f slowFollower) Set(name string, o store.Object) {
	time.Sleep(time.Second)
	f.Tracker.Set(name, o)
}

// TestADependentMayBeListedBeforeItsOwner has both be created while nothing can be followed. An object without
// a namespace cannot have an owner in one, and is not deleted for that.
func TestADependentMayBeListedBeforeItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig{t, memory.New(memory.Options{EndsLeases: true})}
		collect(t, slowList{r.store}, "a")
		r.settle()
		r.store.Inject(memory.Follow, memory.Fault{Err: controlplane.ErrUnavailable})
		r.settle()
		r.put("m/a", "b <- m/a", "c <- gone")
		r.store.Heal()
		r.settle()
		r.want("b <- m/a; m/a")
	})
}

// TestAPodThatIsBeingDeletedMayBeListedBeforeAnotherOne has a host that stores the pod of another host as deleted. A
// person's object that belongs to the pod, and that copy, are listed before the pod.
func TestAPodThatIsBeingDeletedMayBeListedBeforeAnotherOne(t *testing.T) {
	for _, finalizer := range []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents} {
		synctest.Test(t, func(t *testing.T) {
			r := rig{t, memory.New(memory.Options{EndsLeases: true})}
			r.raw(store.Objects, "backups/shop/b", `"apiVersion":"example.com/v1","kind":"Backup"`, owned("b", "shop", reference("v1", "Pod", "p")))
			r.raw(store.Objects, "pods/mallory/shop/p", pod, owned("p", "shop", "")+fmt.Sprintf(`,"finalizers":[%q],"deletionTimestamp":"2026-01-01T00:00:00Z"`, finalizer))
			r.raw(store.Objects, "pods/n/shop/p", pod, owned("p", "shop", ""))
			collect(t, slowList{r.store}, "a")
			r.settle()
			stored, err := r.store.Get(t.Context(), store.Objects, "backups/shop/b")
			if err != nil || len(stored.GetOwnerReferences()) != 1 {
				t.Errorf("%s: Get() = %v, %v, want the object with its owner", finalizer, stored, err)
			}
		})
	}
}

// want compares the stored things.
func (r rig) want(want string) {
	r.Helper()
	if got := r.things(); got != want {
		r.Errorf("stored = %q, want %q", got, want)
	}
}
