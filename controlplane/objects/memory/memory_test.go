package memory_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/memory"
)

func put(t *testing.T, s *memory.Store, key objects.Key, p objects.Put) objects.Version {
	t.Helper()
	version, err := s.Put(t.Context(), key, p)
	if err != nil {
		t.Fatalf("Put(%s) = %v, want no error", key, err)
	}
	return version
}

func event(i int) objects.Key {
	return objects.Key{Kind: objects.Event, Node: "n", Name: fmt.Sprintf("e-%d", i)}
}

func TestTheOldestEventIsDeletedForANewOne(t *testing.T) {
	s := memory.New(memory.Options{MaxEvents: 3})
	first := put(t, s, event(0), objects.Put{Value: []byte("{}")})
	for i := range 4 {
		put(t, s, event(i+1), objects.Put{Value: []byte("{}")})
		if i == 1 {
			first = put(t, s, event(0), objects.Put{Value: []byte("{}"), Instead: first}) // it is the latest one now
		}
	}
	var left []string
	for _, o := range s.Snapshot(objects.Event) {
		left = append(left, o.Key.Name)
	}
	if want := []string{"e-0", "e-3", "e-4"}; !slices.Equal(left, want) {
		t.Errorf("Snapshot() = %q, want %q", left, want)
	}
}

func TestVersionsGoOnAfterARestartAndARestore(t *testing.T) {
	key := objects.Key{Kind: objects.Node, Node: "n"}
	s := memory.New(memory.Options{})
	first := put(t, s, key, objects.Put{Value: []byte(`"first"`)})
	kept := s.Snapshot(objects.Node, objects.Event)
	restarted := memory.New(memory.Options{})
	restarted.Restore(kept)
	if o, err := restarted.Get(t.Context(), key); err != nil || o.Version != first || string(o.Value) != `"first"` {
		t.Errorf("Get() after a restart = %+v, %v, want it as before", o, err)
	}
	second := put(t, s, key, objects.Put{Value: []byte(`"second"`), Instead: first})
	s.Restore(kept)
	o, err := s.Get(t.Context(), key)
	if err != nil || o.Version == first || o.Version == second || string(o.Value) != `"first"` {
		t.Errorf("Get() after a backup was restored = %+v, %v, want the first under another version than %s and %s", o, err, first, second)
	}
}

func TestObjectsEndOnlyWhereTheyAreTo(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprint(ends), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New(memory.Options{})
				s.End(ends)
				put(t, s, event(0), objects.Put{Value: []byte("{}"), TTL: time.Minute})
				time.Sleep(time.Minute)
				if _, err := s.Get(t.Context(), event(0)); (err != nil) != ends {
					t.Errorf("Get() after its time = %v, want it gone: %v", err, ends)
				}
			})
		})
	}
}

func TestAFollowerGetsEachChange(t *testing.T) {
	s, changes := memory.New(memory.Options{}), []objects.Kind{}
	s.Follow(func(kind objects.Kind) { changes = append(changes, kind) })
	node, lease := objects.Key{Kind: objects.Node, Node: "n"}, objects.Key{Kind: objects.Lease, Node: "n"}
	version := put(t, s, node, objects.Put{Value: []byte("{}")})
	put(t, s, lease, objects.Put{Value: []byte("{}")})
	if _, err := s.Put(t.Context(), node, objects.Put{Value: []byte("{}")}); err == nil {
		t.Error("Put() over another version = nil, want an error")
	}
	for range 2 { // the second time it does not exist
		if err := s.Delete(t.Context(), node, objects.None); err != nil {
			t.Fatal(err)
		}
	}
	if want := []objects.Kind{objects.Node, objects.Lease, objects.Node, objects.Lease}; !slices.Equal(changes, want) || version == objects.None {
		t.Errorf("changes = %q, want %q", changes, want)
	}
}
