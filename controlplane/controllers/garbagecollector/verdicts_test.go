package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// inStore runs a test with an empty store as etcd.
func inStore(t *testing.T, test func(r rig)) {
	synctest.Test(t, func(t *testing.T) { test(rig{t, memory.New(memory.Options{EndsLeases: true})}) })
}

// steps are the steps that a collector has done.
type steps struct {
	mu   sync.Mutex // guards list
	list []garbagecollector.Step
}

// note has a collector note its steps.
func (s *steps) note(c *garbagecollector.Controller) {
	c.OnDone = func(step garbagecollector.Step) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list = append(s.list, step)
	}
}

// take returns the steps so far.
func (s *steps) take() []garbagecollector.Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// TestWhyObjectsAreChanged checks what people read about each step.
func TestWhyObjectsAreChanged(t *testing.T) {
	for name, c := range map[string]struct {
		things []string
		act    func(r rig)
		want   []string // sorted
	}{
		"an owner that does not exist": {
			[]string{"b <- a", "c <- b"},
			func(rig) {},
			[]string{"things/b: delete: owner things/a does not exist", "things/c: delete: owner things/b does not exist"},
		},
		"one of two owners": {
			[]string{"b", "c <- a, b"},
			func(rig) {},
			[]string{"things/c: remove owner references: things/a does not exist or is being deleted; other owners remain"},
		},
		"an owner that is deleted last": {
			[]string{"a", "b <- a!", "c <- b!"},
			func(r rig) { r.del("a", foreground) },
			[]string{
				"things/a: remove finalizer foregroundDeletion: no dependent is left that it waits for",
				"things/b: delete (foreground): owner things/a is being deleted after its dependents",
				"things/b: remove finalizer foregroundDeletion: no dependent is left that it waits for",
				"things/c: delete: owner things/b is being deleted after its dependents",
			},
		},
		"an owner that is deleted without its dependents": {
			[]string{"a", "b <- a"},
			func(r rig) { r.del("a", orphan) },
			[]string{
				"things/a: remove finalizer orphan: no dependent is left that it waits for",
				"things/b: remove owner references: its owner is being deleted without its dependents",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inStore(t, func(r rig) {
				r.put(c.things...)
				c.act(r)
				done := &steps{}
				r.collector("a", done.note)
				r.settle()
				var got []string
				for _, s := range done.take() {
					got = append(got, s.Object()+": "+s.Action()+": "+s.Reason)
				}
				if slices.Sort(got); !slices.Equal(got, c.want) {
					t.Errorf("steps =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
				}
			})
		})
	}
}

// TestAnObjectWithManyOwners has more owners than one write can compare.
func TestAnObjectWithManyOwners(t *testing.T) {
	const most = store.MostOthers
	gone := func(n int) (owners []string) {
		for i := range n {
			owners = append(owners, reference("example.com/v1", "Thing", fmt.Sprintf("gone%d", i)))
		}
		return owners
	}
	last := reference("example.com/v1", "Thing", "last")
	invalid := reference("example.com/v1", "", "gone")
	for name, c := range map[string]struct {
		owners []string
		want   string
	}{
		"all are gone":                       {gone(most + 1), "remove owner references of 50; delete"},
		"as many as one write can compare":   {gone(most), "delete"},
		"the last one waits for its removal": {append(gone(most), last), "remove owner references of 50; delete"},
		"the last one cannot be known":       {append(gone(most+1), invalid), ""},
	} {
		t.Run(name, func(t *testing.T) {
			inStore(t, func(r rig) {
				r.put("last")
				r.del("last", foreground)
				r.raw(store.Objects, "things/x", thing, owned("x", "", strings.Join(c.owners, ",")))
				done := &steps{}
				r.collector("a", done.note)
				r.settle()
				var got []string
				for _, s := range done.take() {
					if s.Name != "things/x" {
						continue
					}
					text := s.Action()
					if len(s.Owners) > 0 {
						text += fmt.Sprintf(" of %d", len(s.Owners))
					}
					got = append(got, text)
				}
				if strings.Join(got, "; ") != c.want {
					t.Errorf("steps = %q, want %q", got, c.want)
				}
			})
		})
	}
}

// releasing is a store that may remove owner references without reading the object. It leaves that to the collector.
type releasing struct {
	*memory.Store
	mu    sync.Mutex // guards names
	names []string
}

// Release implements garbagecollector.Releaser.
func (s *releasing) Release(_ context.Context, _ store.Kind, name string, _ store.Preconditions, _ []types.UID, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
	return errors.ErrUnsupported
}

// TestAReferenceIsRemovedByItsUIDAlone only if no other reference of the object has that UID.
func TestAReferenceIsRemovedByItsUIDAlone(t *testing.T) {
	for name, c := range map[string]struct {
		things []string
		want   string
		by     []string
	}{
		"its UID is the only one": {[]string{"b", "c <- a, b"}, "b; c <- b", []string{"things/c"}},
		"another one has its UID": {[]string{"a", "c <- a, Other:a"}, "a; c <- a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			inStore(t, func(r rig) {
				s := &releasing{Store: r.store}
				r.put(c.things...)
				collect(r, s, "a")
				r.settle()
				r.want(c.want)
				if !slices.Equal(s.names, c.by) {
					t.Errorf("removed by the UID from %q, want %q", s.names, c.by)
				}
			})
		})
	}
}

// TestWhatIsReported has objects about which there is something to report, or nothing.
func TestWhatIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(r rig)
		want string
	}{
		"finalizers of other programs": {func(r rig) {
			r.put("a")
			r.finalizers("a", held)
			r.del("a", orphan)
		}, "things/a waits: finalizers of other programs: " + held},
		"an owner that can be read no more, after a list": {func(r rig) {
			r.put("a", "b <- a")
			r.settle()
			r.store.PutRaw(store.Objects, "things/a", []byte("{"))
			r.store.Relist()
		}, ""},
		"a possible owner that cannot be read": {func(r rig) {
			r.store.Inject(memory.Delete, memory.Fault{Err: controlplane.ErrUnavailable})
			r.put("b <- a")
			r.settle()
			r.store.PutRaw(store.Objects, "things/a", []byte("{"))
		}, "things/b is undecided"},
		"the other one of two owners with one UID": {func(r rig) {
			r.raw(store.Objects, "things/x", thing, `"name":"x","uid":"uid-of-a"`)
			r.put("a", "b <- a")
			r.settle()
			r.store.Remove(store.Objects, "things/x")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inStore(t, func(r rig) {
				gc, _ := r.collector("a")
				r.settle()
				c.act(r)
				r.settle()
				var got []string
				for _, f := range gc.Report().Facts {
					switch {
					case f.Step != nil:
						got = append(got, f.String()+" is due: "+f.Step.Action())
					case f.Waits != "":
						got = append(got, f.String()+" waits: "+f.Waits)
					default:
						got = append(got, f.String()+" is undecided")
					}
				}
				if strings.Join(got, "; ") != c.want {
					t.Errorf("facts = %q, want %q", got, c.want)
				}
			})
		})
	}
}

// crowded is a store in which another client stores an object before each of the first removals of a finalizer.
type crowded struct {
	*memory.Store
	left atomic.Int32
}

// Update implements store.Store.
func (s *crowded) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	if n := s.left.Add(-1); n >= 0 {
		s.PutRaw(store.Objects, fmt.Sprintf("things/new%d", n), fmt.Appendf(nil, `{%s,"metadata":{"name":"new%d","uid":"new%d"}}`, thing, n, n))
		time.Sleep(time.Millisecond) // the watch reports it
	}
	return s.Store.Update(ctx, kind, name, pre, edit)
}

// TestAStepIsDecidedAgainWhenOthersWrite has a deletion for which no object may be created meanwhile.
func TestAStepIsDecidedAgainWhenOthersWrite(t *testing.T) {
	inStore(t, func(r rig) {
		s := &crowded{Store: r.store}
		c := collect(r, s, "a")
		r.put("a")
		r.settle()
		s.left.Store(5)
		r.del("a", orphan)
		r.settle()
		if got := r.names(); slices.Contains(got, "+a") || slices.Contains(got, "a") {
			t.Errorf("stored = %q, want that a is gone", got)
		}
		if w := c.Report().Writes; w.Conflict+w.Failed > 0 {
			t.Errorf("writes = %+v, want no conflict: each write was tried again", w)
		}
	})
}

// TestTheTypesOfARefusalAreNamed has an object without a namespace, whose owner is a Lease.
func TestTheTypesOfARefusalAreNamed(t *testing.T) {
	inStore(t, func(r rig) {
		r.raw(store.Leases, "l", lease, `"name":"l","namespace":"kube-node-lease","uid":"uid-of-l"`)
		r.raw(store.Objects, "things/b", thing, owned("b", "", reference("coordination.k8s.io/v1", "Lease", "l")))
		var mu sync.Mutex
		var got []string
		r.collector("a", func(c *garbagecollector.Controller) {
			c.OnRefused = func(refused garbagecollector.Refusal) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, strings.TrimSpace(refused.APIVersion+" "+refused.String()))
			}
		})
		r.settle()
		slices.Sort(got)
		if want := []string{"coordination.k8s.io/v1 leases/l", "things/b"}; !slices.Equal(got, want) {
			t.Errorf("refused = %q, want %q", got, want)
		}
	})
}

// TestATreeHasAnOwnerThatIsOrphanedAlready has a dependent of two objects. The deletion of the other one is amid.
func TestATreeHasAnOwnerThatIsOrphanedAlready(t *testing.T) {
	inStore(t, func(r rig) {
		r.put("a", "o", "c <- a, o")
		r.finalizers("o", held)
		r.del("o", orphan)
		r.store.Inject(memory.Update, memory.Fault{Err: controlplane.ErrUnavailable})
		gc, _ := r.collector("a")
		r.settle()
		const want = "a deleted; -c orphaned (deleted instead if its other owners are deleted later)"
		if tree, err := gc.Tree(r.Context(), garbagecollector.Key{Kind: store.Objects.Name, Name: "things/a"}, background); err != nil || written(tree) != want {
			t.Errorf("Tree() = %s, %v, want %s", written(tree), err, want)
		}
	})
}

// TestKindsThatDoNotChangeAreFollowedOnce counts the requests of a collector that has nothing to do.
func TestKindsThatDoNotChangeAreFollowedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := discover(t)
		kinds, follows := d.asked.Load(), d.Calls(memory.Follow)
		time.Sleep(10 * time.Minute)
		if n := d.asked.Load() - kinds; n < 15 || n > 21 {
			t.Errorf("kinds were listed %d times in ten minutes, want once in half a minute", n)
		}
		if n := d.Calls(memory.Follow) - follows; n != 0 {
			t.Errorf("%d new watches, want none", n)
		}
	})
}

// TestAKindThatExistsNoMoreIsForgotten unless the store does not know all kinds at the moment.
func TestAKindThatExistsNoMoreIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, gc := discover(t)
		cups := store.Kind{Name: "cups", GVK: things.GVK, New: things.New}
		cups.GVK.Kind = "Cup"
		known := func(want bool) {
			t.Helper()
			d.settle()
			if _, known := gc.Report().Kinds["cups"]; known != want {
				t.Errorf("cups are known: %t, want %t", known, want)
			}
		}
		known(false)
		d.serve(cups)
		known(true)
		d.stale.Store(true)
		d.serve()
		known(true)
		d.stale.Store(false)
		known(false)
	})
}

// TestAKindThatGetsAnotherVersionStaysKnown has an object that is deleted if its kind is forgotten.
func TestAKindThatGetsAnotherVersionStaysKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, gc := discover(t)
		cups := store.Kind{Name: "cups", GVK: things.GVK, New: things.New}
		cups.GVK.Kind = "Cup"
		d.serve(cups)
		d.settle()
		d.Put(cups, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"}})
		d.settle()
		objects := gc.Report().Objects
		d.Inject(memory.Follow, memory.Fault{Err: controlplane.ErrUnavailable})
		cups.GVK.Version = "v2"
		d.serve(cups)
		time.Sleep(time.Minute)
		if got := gc.Report().Objects; got != objects {
			t.Errorf("%d objects are known while the new version cannot be read, want %d", got, objects)
		}
	})
}

// TestAnOwnerThatIsRefusedIsNotOrphaned has an orphan deletion that is refused, and then given up: later dependents are
// deleted with the owner.
func TestAnOwnerThatIsRefusedIsNotOrphaned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := discover(t)
		d.put(things, "a", things, "")
		d.settle()
		deleting := func(finalizer string) {
			d.Edit(things, "a", func(o store.Object) {
				now := metav1.Now()
				o.SetDeletionTimestamp(&now)
				o.SetFinalizers([]string{finalizer})
			})
		}
		d.Inject(memory.Update, memory.Fault{Err: controlplane.ErrConflict})
		deleting(metav1.FinalizerOrphanDependents)
		d.settle()
		deleting(held)
		d.Heal()
		d.settle()
		d.put(disks, "b", things, "a")
		d.settle()
		d.Remove(things, "a")
		d.settle()
		d.want("after the owner is gone", "")
	})
}

// TestAKindWithoutNamespacesHoldsUpNoOwnerInOne has disks fail, which cannot have an owner in a namespace.
func TestAKindWithoutNamespacesHoldsUpNoOwnerInOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := discoverAs(t, inNamespaces(things), disks)
		d.fail(true)
		d.settle()
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "m", Name: "a", UID: uid("a")}}
		d.Put(d.things, o)
		d.request("m/a", metav1.FinalizerOrphanDependents)
		d.settle()
		d.want("while disks cannot be listed", "")
	})
}
