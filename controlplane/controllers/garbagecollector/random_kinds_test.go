package garbagecollector_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// kindsPlace has the kinds of a store like an API server: things without namespaces, disks and parts in two.
type kindsPlace struct{ kinds []store.Kind }

func (kindsPlace) rules() rules {
	disk, part := schema.GroupKind{Group: "example.com", Kind: "Disk"}, schema.GroupKind{Group: "example.com", Kind: "Part"}
	return rules{server: true, exact: true, namespaced: []schema.GroupKind{disk, part}, unlisted: disk}
}

func (k kindsPlace) target(p *person) (store.Kind, string) {
	kind := k.kinds[p.IntN(len(k.kinds))]
	name := string(rune('a' + p.IntN(4)))
	if kind.NameOf != nil {
		name = []string{"m/", "n/"}[p.IntN(2)] + name
	}
	return kind, name
}

func (kindsPlace) object(p *person, kind store.Kind, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind.GVK)
	if namespace, own, found := strings.Cut(name, "/"); found {
		o.Namespace, name = namespace, own
	}
	o.Name, o.UID = name, types.UID(fmt.Sprintf("u%x", p.Uint64()))
	return o
}

func (k kindsPlace) at(path string) (store.Kind, string) {
	i := slices.IndexFunc(k.kinds, func(kind store.Kind) bool { return strings.HasPrefix(path, kind.Folder()) })
	return k.kinds[i], strings.TrimPrefix(path, k.kinds[i].Folder())
}

// TestRandomOperationsWhileAKindCannotBeListed has people change objects at random while disks cannot be
// listed at times, and judges each write of the collectors by the model.
func TestRandomOperationsWhileAKindCannotBeListed(t *testing.T) {
	rounds := uint64(10)
	if os.Getenv("HOSTLER_TEST_LONG") != "" {
		rounds = 200
	}
	sum := map[string]int{}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			for what, n := range runWithKinds(t, seed) {
				sum[what] += n
			}
		})
	}
	t.Logf("%v", sum)
	for _, what := range []string{"removal", "removal after a finalizer", "request of deletion", "change of owners", "change of finalizers"} {
		if sum["collector: "+what] == 0 {
			t.Errorf("no %s by a collector", what)
		}
	}
}

func runWithKinds(t *testing.T, seed uint64) map[string]int {
	const writers, operations = 4, 150
	s := memory.New(memory.Options{})
	parts := disks
	parts.Name, parts.GVK.Kind = "parts", "Part"
	d := &discovered{T: t, Store: s, things: things, disks: inNamespaces(disks), more: []store.Kind{inNamespaces(parts)}, down: make(chan struct{})}
	place := kindsPlace{append(d.more, d.things, d.disks)}
	j := &journal{kind: store.Objects, all: map[int64]change{}, seen: map[string]int64{}, unreadable: map[string]bool{}}
	go func() { _ = s.Follow(t.Context(), store.Objects, store.AllChanges, j) }()
	crowd := &people{store: s, place: place, names: 1, claims: newClaims(), create: func(_ context.Context, kind store.Kind, name string, o *metav1.PartialObjectMetadata) error {
		s.PutRaw(kind, name, []byte(text(o)))
		return nil
	}}
	var acting sync.WaitGroup
	for i := range uint64(writers) {
		acting.Go(func() {
			p := &person{crowd, rand.New(rand.NewPCG(seed, i))}
			for range operations {
				p.act(t.Context())
				time.Sleep(time.Duration(p.IntN(1000)*p.IntN(2)) * time.Millisecond)
			}
		})
	}
	collect(t, d, "one")
	collect(t, d, "two")
	done := make(chan struct{})
	go func() {
		acting.Wait()
		close(done)
	}()
	random, fails := rand.New(rand.NewPCG(seed, writers)), false
	for acts := true; acts; {
		select {
		case <-done:
			acts = false
		case <-time.After(time.Duration(random.IntN(6000)) * time.Millisecond):
		}
		switch random.IntN(4) {
		case 0:
			s.Depose(garbagecollector.Name)
		case 1:
			s.Inject([]memory.Call{memory.Update, memory.Delete}[random.IntN(2)], memory.Fault{Delay: time.Second, Times: 20})
		default:
			fails = !fails
			d.fail(fails)
		}
	}
	s.Heal()
	if fails {
		d.fail(false)
	}
	m := newModel(crowd.claims, place.rules())
	quiet := func() {
		d.settle()
		m.replay(j.all)
		m.report(t, fmt.Sprint("seed ", seed))
	}
	quiet()
	crowd.releaseAll(t.Context(), m.held())
	quiet()
	return m.counts
}
