package garbagecollector_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/controllertest"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

func TestNothingIsRememberedOfWhatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig{t, memory.New(memory.Options{EndsLeases: true})}
		c, _ := r.collector("a")
		for i := range 3 {
			name := fmt.Sprintf("n%d", i)
			r.node(name)
			r.raw(store.Events, name+"/e", event, `"name":"e","namespace":"default","uid":"e`+name+`"`)
			r.raw(store.Objects, "pods/"+name+"/shop/p", pod, owned("p", "shop", reference("v1", "Node", name)))
		}
		r.node("alone")
		r.settle()
		r.store.Remove(store.Nodes, "alone")
		for i := range 3 {
			r.store.Remove(store.Nodes, fmt.Sprintf("n%d", i))
		}
		r.settle()
		r.stored(store.Events, "n1/e", false)
		if got := c.Remembered(); got != 0 {
			t.Errorf("Remembered() = %d, want 0", got)
		}
	})
}

func TestOwnersWithoutTheirDependentsAreRememberedUpToALimit(t *testing.T) {
	if got, last := garbagecollector.OrphanedAfter(garbagecollector.MostOrphaned + 1); got != garbagecollector.MostOrphaned || !last {
		t.Errorf("OrphanedAfter() = %d, with the last one %t, want the last one, and %d in all", got, last, garbagecollector.MostOrphaned)
	}
}

// A store that does not answer has the first read of many wait, not one after the other.
func TestAStoreThatDoesNotAnswerIsReadOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rig{t, memory.New(memory.Options{EndsLeases: true})}
		r.collector("a")
		const nodes = 100
		for i := range nodes {
			r.node(fmt.Sprintf("n%d", i))
		}
		r.settle()
		r.store.Inject(memory.Get, memory.Fault{Err: controlplane.ErrUnavailable})
		before := r.store.Calls(memory.Get)
		for i := range nodes {
			r.store.Remove(store.Nodes, fmt.Sprintf("n%d", i))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := r.store.Calls(memory.Get) - before; got > 20 {
			t.Errorf("%d reads in 10 s, want one each second", got)
		}
		r.store.Heal()
		before = r.store.Calls(memory.Get)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := r.store.Calls(memory.Get) - before; got < nodes {
			t.Errorf("%d reads once the store answers, want one for each of %d Nodes", got, nodes)
		}
	})
}

// versioned is a store with one kind that is served in another version later.
type versioned struct {
	*memory.Store
	mu      sync.Mutex
	served  []string
	broken  string   // a version that cannot be read
	deletes []string // the versions
}

func (v *versioned) serve(versions ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.served = versions
}

// Kinds implements garbagecollector.Discoverer.
func (v *versioned) Kinds(context.Context) ([]store.Kind, func(store.Kind) bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var kinds []store.Kind
	for _, version := range v.served {
		kinds = append(kinds, thingsIn(version))
	}
	return kinds, func(store.Kind) bool { return false }, nil
}

// Follow implements store.Store.
func (v *versioned) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	if kind.GVK.Version == v.broken {
		return controlplane.ErrUnavailable
	}
	kind.GVK.Version = "v1" // as the test stores objects
	return v.Store.Follow(ctx, kind, scope, to)
}

// Delete implements store.Store.
func (v *versioned) Delete(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, policy metav1.DeletionPropagation) error {
	v.mu.Lock()
	v.deletes = append(v.deletes, kind.GVK.Version)
	v.mu.Unlock()
	kind.GVK.Version = "v1"
	return v.Store.Delete(ctx, kind, name, pre, policy)
}

func TestATypeIsWrittenInTheVersionThatCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &versioned{Store: memory.New(memory.Options{}), served: []string{"v1alpha1"}, broken: "v2"}
		contact, quiet := &store.Contact{}, func(error) {}
		c := garbagecollector.New(v, contact, slogDiscard)
		e := election.New(v, garbagecollector.Name, "a", slogDiscard)
		controllertest.Run(t,
			func(ctx context.Context) error { return contact.Run(ctx, v.Ping, quiet) },
			func(ctx context.Context) error { return c.Run(ctx, quiet) },
			func(ctx context.Context) error { return c.RunKinds(ctx, v, quiet) },
			func(ctx context.Context) error { return e.Run(ctx, c.Lead, quiet) },
		)
		things := thingsIn("v1")
		v.Put(things, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid("a")}})
		v.Put(things, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: uid("b"), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Thing", Name: "a", UID: uid("a")},
		}}})
		time.Sleep(5 * time.Minute)
		v.serve("v2", "v1")
		time.Sleep(5 * time.Minute)
		v.Remove(things, "a")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if want := []string{"v1"}; !slices.Equal(v.deletes, want) {
			t.Errorf("versions of the deletions = %q, want %q", v.deletes, want)
		}
	})
}

// thingsIn is the kind Thing in a version.
func thingsIn(version string) store.Kind {
	return store.Kind{
		Name: "things", GVK: schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Thing"},
		New: func() store.Object { return &metav1.PartialObjectMetadata{} },
	}
}

var _ garbagecollector.Discoverer = (*versioned)(nil)
