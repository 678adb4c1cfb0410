package garbagecollector_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// discovered is a store like an API server, with things and disks. Disks may fail to be listed.
type discovered struct {
	*testing.T
	*memory.Store
	things, disks store.Kind
	more          []store.Kind
	asked         atomic.Int32 // how often kinds were listed
	stale         atomic.Bool  // there may be kinds that are not listed

	mu   sync.Mutex    // guards what follows, and more
	down chan struct{} // closed while disks fail
	late chan struct{} // no disk is seen until it is closed; nil for at once
}

// gate is a Follower of disks.
type gate struct {
	store.Tracker
	*discovered
}

// Set implements store.Follower.
func (g gate) Set(name string, o store.Object) {
	g.mu.Lock()
	late := g.late
	g.mu.Unlock()
	if late != nil {
		<-late
	}
	g.Tracker.Set(name, o)
}

var (
	things = thingsIn("v1")
	disks  = store.Kind{Name: "disks", GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Disk"}, New: things.New}
)

// discover starts a collector on such a store.
func discover(t *testing.T) (*discovered, *garbagecollector.Controller) {
	return discoverAs(t, things, disks)
}

// discoverAs is discover with other kinds for things and disks.
func discoverAs(t *testing.T, things, disks store.Kind) (*discovered, *garbagecollector.Controller) {
	d := &discovered{T: t, Store: memory.New(memory.Options{}), things: things, disks: disks, down: make(chan struct{})}
	c := collect(t, d, "a").Controller
	d.settle()
	return d, c
}

func (d *discovered) settle() {
	time.Sleep(5 * time.Minute)
	synctest.Wait()
}

// fail has disks fail, or not any more.
func (d *discovered) fail(fails bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if fails {
		close(d.down)
	} else {
		d.down = make(chan struct{})
	}
}

// Kinds implements garbagecollector.Discoverer.
func (d *discovered) Kinds(context.Context) ([]store.Kind, func(store.Kind) bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked.Add(1)
	return append([]store.Kind{d.things, d.disks}, d.more...), func(store.Kind) bool { return d.stale.Load() }, nil
}

// Follow implements store.Store.
func (d *discovered) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	if kind.Name != disks.Name {
		return d.Store.Follow(ctx, kind, scope, to)
	}
	d.mu.Lock()
	down := d.down
	d.mu.Unlock()
	select {
	case <-down:
		return controlplane.ErrUnavailable
	default:
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-down:
			cancel(controlplane.ErrUnavailable)
		case <-ctx.Done():
		}
	}()
	tracker, _ := to.(store.Tracker)
	if err := d.Store.Follow(ctx, kind, scope, gate{tracker, d}); context.Cause(ctx) == nil {
		return err
	}
	return context.Cause(ctx)
}

// serve has the store have these kinds, beside things and disks.
func (d *discovered) serve(kinds ...store.Kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.more = kinds
}

// put stores an object whose owner, if it has a name, waits for it in the foreground.
func (d *discovered) put(kind store.Kind, name string, owner store.Kind, of string) {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid(name)}}
	if of != "" {
		block := true
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: owner.GVK.Kind, Name: of, UID: uid(of), BlockOwnerDeletion: &block}}
	}
	d.Put(kind, o)
}

// request requests the deletion of a thing in a way, whatever was requested before.
func (d *discovered) request(name, finalizer string) {
	d.Helper()
	_, err := d.Update(d.Context(), d.things, name, store.Preconditions{}, func(o store.Object) error {
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
		o.SetFinalizers([]string{finalizer})
		return nil
	})
	if err != nil {
		d.Fatal(err)
	}
}

// want compares the stored things and disks.
func (d *discovered) want(when, want string) {
	d.Helper()
	var list []string
	for _, kind := range []store.Kind{d.things, d.disks} {
		seen := &listing{objects: map[string]store.Object{}, done: make(chan struct{})}
		ctx, stop := context.WithCancel(d.Context())
		go func() { _ = d.Store.Follow(ctx, kind, store.AllChanges, seen) }()
		<-seen.done
		stop()
		list = append(list, inOrder(seen.objects))
	}
	if got := strings.Trim(strings.Join(list, "; "), "; "); got != want {
		d.Errorf("stored %s = %q, want %q", when, got, want)
	}
}

// TestAPersonMayChangeHowADeletionIsCarriedOut has a deletion in the foreground become one that orphans
// while the collector is about to delete a dependent.
func TestAPersonMayChangeHowADeletionIsCarriedOut(t *testing.T) {
	for name, c := range map[string]struct{ first, then, want string }{
		"to orphan":                  {metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents, "b"},
		"from orphan":                {metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, ""},
		"to another way":             {metav1.FinalizerDeleteDependents, held, "+a; b <- a"},
		"from orphan to another way": {metav1.FinalizerOrphanDependents, held, "+a; b <- a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := discover(t)
				d.put(things, "a", things, "")
				d.put(disks, "b", things, "a")
				d.settle()
				d.request("a", c.first)
				for _, call := range []memory.Call{memory.Delete, memory.Update} {
					d.Inject(call, memory.Fault{Delay: time.Second})
				}
				time.Sleep(500 * time.Millisecond)
				d.Heal()
				d.request("a", c.then)
				d.settle()
				d.want("at the end", c.want)
			})
		})
	}
}

// TestAnOwnerIsReleasedOnceItsDependentsAreSeen has a disk of a thing be seen late.
func TestAnOwnerIsReleasedOnceItsDependentsAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := discover(t)
		d.put(things, "a", things, "")
		d.put(things, "e", things, "")
		d.put(disks, "d", things, "e") // a thing may own a disk
		d.settle()
		late := make(chan struct{})
		d.mu.Lock()
		d.late = late
		d.mu.Unlock()
		d.put(disks, "c", things, "a")
		d.request("a", metav1.FinalizerOrphanDependents)
		d.settle()
		d.want("while a disk is not seen", "+a; e; c <- a; d <- e")
		close(late)
		d.settle()
		d.want("once it is seen", "e; c; d <- e")
	})
}

// TestASilentWatchDeletesNothingThatHasAnOwner has a watch of disks that reports nothing any more. What is decided from
// the disks that it has reported is compared with the stored ones.
func TestASilentWatchDeletesNothingThatHasAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := discover(t)
		d.put(things, "a", things, "")
		d.put(things, "e", things, "")
		d.put(disks, "c", things, "a")
		d.settle()
		d.mu.Lock()
		d.late = make(chan struct{})
		d.mu.Unlock()
		d.put(disks, "o", things, "")  // an owner that is not seen
		d.put(things, "b", disks, "o") // its dependent is
		d.put(disks, "c", things, "e") // a dependent that gets another owner before the first one is deleted
		d.put(things, "f", disks, "none")
		d.Remove(things, "a")
		d.settle()
		d.want("while the watch is silent", "b <- o; e; c <- e; o")
		close(d.late)
		d.settle()
		d.want("once it reports", "b <- o; e; c <- e; o")
	})
}

// TestAKindThatFailsAfterItWasListedHoldsUpDeletions has disks be created that the collector does not see.
func TestAKindThatFailsAfterItWasListedHoldsUpDeletions(t *testing.T) {
	for name, c := range map[string]struct{ finalizer, during, after string }{
		"orphan":     {metav1.FinalizerOrphanDependents, "+a; e; b <- a; d <- e", "e; b; d <- e"},
		"foreground": {metav1.FinalizerDeleteDependents, "+a; e; b <- a; d <- e", "e; d <- e"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, collector := discover(t)
				d.put(things, "a", things, "")
				d.put(things, "e", things, "")
				d.put(disks, "d", things, "e")
				d.settle()
				d.fail(true)
				d.settle()
				d.put(disks, "b", things, "a")
				d.request("a", c.finalizer)
				d.settle()
				d.want("while disks cannot be listed", c.during)
				if facts := collector.Report().Facts; len(facts) != 1 || facts[0].String() != "things/a" || !strings.Contains(facts[0].Waits, "disks cannot be listed") {
					t.Errorf("facts = %+v, want that a waits for disks", facts)
				}
				d.fail(false)
				d.settle()
				d.want("once disks can be listed", c.after)
			})
		})
	}
}

// TestAKindThatFailsHoldsUpNoDeletionInTheForegroundWithoutSuchDependents deletes a thing. No disk is
// known that a thing owns.
func TestAKindThatFailsHoldsUpNoDeletionInTheForegroundWithoutSuchDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := discover(t)
		d.put(things, "a", things, "")
		d.put(things, "c", things, "a")
		d.settle()
		d.fail(true)
		d.settle()
		d.request("a", metav1.FinalizerDeleteDependents)
		d.settle()
		d.want("while disks cannot be listed", "")
	})
}

// inNamespaces is a kind whose objects have namespaces.
func inNamespaces(k store.Kind) store.Kind {
	k.NameOf = func(o store.Object) string { return o.GetNamespace() + "/" + o.GetName() }
	return k
}

// TestAKindThatFailsHoldsUpDeletionsWhereItsObjectsCannotBeListed deletes a thing in each of three namespaces:
// one has no disks, one has a disk that cannot be read, and one has a dependent.
func TestAKindThatFailsHoldsUpDeletionsWhereItsObjectsCannotBeListed(t *testing.T) {
	for _, finalizer := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
		synctest.Test(t, func(t *testing.T) {
			d, collector := discoverAs(t, inNamespaces(things), inNamespaces(disks))
			put := func(kind store.Kind, namespace, name, owner string) {
				o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid(namespace + "/" + name)}}
				if owner != "" {
					block := true
					o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: owner, UID: uid(namespace + "/" + owner), BlockOwnerDeletion: &block}}
				}
				d.Put(kind, o)
			}
			put(d.things, "known", "a", "")
			put(d.disks, "known", "b", "a") // a thing may own a disk
			d.settle()
			d.fail(true)
			d.settle()
			for _, namespace := range []string{"l", "m", "n"} {
				put(d.things, namespace, "a", "")
			}
			put(d.disks, "l", "other", "")
			d.PutRaw(d.disks, "m/x", []byte("{"))
			put(d.disks, "n", "b", "a")
			for _, name := range []string{"l/a", "m/a", "n/a"} {
				d.request(name, finalizer)
			}
			d.settle()
			d.want("while disks cannot be listed", "known/a; +m/a; +n/a; known/b <- known/a; l/other; n/b <- n/a")
			if failing := collector.Report().Failing; len(failing) != 2 || !errors.Is(failing["things/m/a"], store.ErrUnreadable) || failing["things/n/a"] == nil {
				t.Errorf("failing = %v, want why things m/a and n/a wait", failing)
			}
			d.Remove(d.disks, "m/x")
			d.fail(false)
			d.settle()
			want := "known/a; known/b <- known/a; l/other; n/b"
			if finalizer == metav1.FinalizerDeleteDependents {
				want = "known/a; known/b <- known/a; l/other"
			}
			d.want("once disks can be listed", want)
		})
	}
}

// TestAnUnreadableObjectHoldsUpOnlyItsPossibleOwners deletes a thing in two namespaces. One has a disk that cannot be
// read, and so does a kind without namespaces. A thing without a namespace may own both.
func TestAnUnreadableObjectHoldsUpOnlyItsPossibleOwners(t *testing.T) {
	for _, c := range []struct {
		things        store.Kind
		names         []string
		during, after string
	}{
		{inNamespaces(things), []string{"l/a", "m/a"}, "+m/a", ""},
		{things, []string{"a"}, "+a", "+a"}, // the rack cannot be read
	} {
		synctest.Test(t, func(t *testing.T) {
			d, _ := discoverAs(t, c.things, inNamespaces(disks))
			racks := store.Kind{Name: "racks", GVK: disks.GVK.GroupVersion().WithKind("Rack"), New: things.New}
			d.serve(racks)
			for _, name := range c.names {
				namespace := strings.TrimSuffix(strings.TrimSuffix(name, "a"), "/")
				d.Put(c.things, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: uid(name)}})
			}
			d.PutRaw(d.disks, "m/x", []byte("{"))
			d.PutRaw(racks, "r", []byte("{"))
			d.settle()
			for _, name := range c.names {
				d.request(name, metav1.FinalizerOrphanDependents)
			}
			d.settle()
			d.want("while two objects cannot be read", c.during)
			d.Remove(d.disks, "m/x")
			d.settle()
			d.want("while one object cannot be read", c.after)
			d.Remove(racks, "r")
			d.settle()
			d.want("once all objects can be read", "")
		})
	}
}

// TestAReferenceIsRemovedOnceItsKindCanBeListed has an object with two owners, of which one is of a kind that
// fails.
func TestAReferenceIsRemovedOnceItsKindCanBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := discover(t)
		d.fail(true)
		d.settle()
		d.put(things, "a", things, "")
		d.Put(things, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: uid("b"), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Thing", Name: "a", UID: uid("a")}, {APIVersion: "example.com/v1", Kind: "Disk", Name: "gone", UID: uid("gone")},
		}}})
		d.settle()
		d.want("while disks cannot be listed", "a; b <- a, gone")
		d.fail(false)
		d.settle()
		d.want("once disks can be listed", "a; b <- a")
	})
}

// kindOf is a kind of an API group.
func kindOf(name, group, kind string) store.Kind {
	return store.Kind{Name: name, GVK: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, New: things.New}
}

// TestDependentsAreDeletedAfterTheTypeOfTheirOwner deletes a type with a part, whose dependent cannot be deleted
// before. Another part was not seen to be deleted.
func TestDependentsAreDeletedAfterTheTypeOfTheirOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, collector := discover(t)
		parts := kindOf("parts", "example.com", "Part")
		d.serve(parts)
		d.put(parts, "a", things, "")
		d.put(parts, "c", things, "")
		d.put(things, "b", parts, "a")
		d.put(things, "d", parts, "c")
		d.settle()
		d.Inject(memory.Delete, memory.Fault{Err: controlplane.ErrUnavailable})
		d.Remove(parts, "a")
		d.settle()
		d.serve()
		d.settle()
		d.Heal()
		d.settle()
		d.want("once dependents can be deleted", "d <- c")
		if got := collector.Remembered(); got != 1 { // the type of the owner of d
			t.Errorf("Remembered() = %d, want 1", got)
		}
	})
}

// TestATypeIsFollowedThatTheStoreHasAMomentAfterItIsRegistered registers a type.
func TestATypeIsFollowedThatTheStoreHasAMomentAfterItIsRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, collector := discover(t)
		registered, parts := kindOf("crds", "apiextensions.k8s.io", "CustomResourceDefinition"), kindOf("parts", "example.com", "Part")
		d.serve(registered)
		d.settle()
		time.Sleep(time.Second) // apart from what is looked for every 30 s
		d.put(registered, "parts.example.com", things, "")
		time.Sleep(100 * time.Millisecond)
		d.serve(registered, parts)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, known := collector.Report().Kinds["parts"]; !known {
			t.Error("parts are not followed, want them followed soon after they are registered")
		}
	})
}
