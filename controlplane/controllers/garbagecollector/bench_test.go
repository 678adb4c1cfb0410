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
