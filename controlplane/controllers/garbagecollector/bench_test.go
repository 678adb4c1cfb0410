package garbagecollector_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// BenchmarkMemory measures what a collector keeps of an object: of 100,000 with one owner each, which have
// ten dependents each.
func BenchmarkMemory(b *testing.B) {
	const objects = 100_000
	for b.Loop() {
		c := garbagecollector.New(memory.New(memory.Options{EndsLeases: true}), &store.Contact{}, slog.New(slog.DiscardHandler))
		var to store.Follower
		for _, f := range c.Follows() {
			if f.Kind.Name == store.Objects.Name {
				to = f.To
			}
		}
		before := heap()
		to.Begin()
		for i := range objects {
			o := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Thing"}}
			o.Name, o.Namespace, o.UID = fmt.Sprintf("o%d", i), "shop", types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: o.APIVersion, Kind: o.Kind, Name: fmt.Sprintf("o%d", i/10), UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i/10))}}
			value, err := json.Marshal(o)
			if err != nil {
				b.Fatal(err)
			}
			name, left := "things/shop/"+o.Name, controlplane.MostValues
			stored, err := store.Objects.Decode(name, value, fmt.Sprintf("%016x-%d-%d-%016x", 1, i, i, i), &left)
			if err != nil {
				b.Fatal(err)
			}
			to.Set(name, stored)
		}
		to.Synced()
		b.ReportMetric(float64(heap()-before)/objects, "B/object")
		goruntime.KeepAlive(c)
	}
}

// heap is how much is in use.
func heap() uint64 {
	goruntime.GC()
	var stats goruntime.MemStats
	goruntime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkLists measures what it costs to decide again after the first list of each of 50 kinds, with
// 100,000 objects whose owners are of the same kind.
func BenchmarkLists(b *testing.B) {
	const kinds, objects = 50, 2000
	for b.Loop() {
		b.StopTimer()
		c := garbagecollector.New(memory.New(memory.Options{}), &store.Contact{}, slog.New(slog.DiscardHandler))
		var followers []store.Tracker
		for i := range kinds {
			k := disks
			k.Name, k.GVK.Kind = fmt.Sprintf("kind%ds", i), fmt.Sprintf("Kind%d", i)
			followers = append(followers, c.Add(k))
		}
		b.StartTimer()
		for i, to := range followers {
			to.Begin()
			for n := range objects {
				o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: fmt.Sprintf("Kind%d", i)}}
				o.Name, o.UID = fmt.Sprintf("o%d", n), types.UID(fmt.Sprintf("%d-%d", i, n))
				o.OwnerReferences = []metav1.OwnerReference{{APIVersion: o.APIVersion, Kind: o.Kind, Name: fmt.Sprintf("o%d", n/10), UID: types.UID(fmt.Sprintf("%d-%d", i, n/10))}}
				to.Set(o.Name, o)
			}
			to.Synced()
			to.Reached("1")
			if due := c.Decide(); due > 0 {
				b.Fatalf("%d steps are due, want none", due)
			}
		}
	}
}
