//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	bed "hostler.io/hostler/test/etcd"
)

// TestWritesThatCompareWholeKindsFailEachForItself makes many such writes at a time. If the
// comparisons of one write fail, the others are still stored. Some values together are too large
// for one request.
func TestWritesThatCompareWholeKindsFailEachForItself(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	f := fleetAt(t, c, "/hostler")
	const nodes = 90
	for i := range nodes {
		annotation := strings.Repeat("x", 1000)
		if i%3 == 2 {
			annotation = strings.Repeat("x", 200_000)
		}
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), UID: "u", Annotations: map[string]string{"a": annotation}}}
		if i%3 == 2 {
			o.Finalizers = []string{"example.com/f"} // so that a deletion stores it again
		}
		value, err := store.Nodes.Encode(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Put(t.Context(), "/hostler/nodes/"+o.Name, string(value)); err != nil {
			t.Fatal(err)
		}
	}
	deposed, _, err := f.Elect(patient(t), "c", "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Resign(patient(t), deposed); err != nil {
		t.Fatal(err)
	}
	term, _, err := f.Elect(patient(t), "c", "b", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	node, err := f.Get(patient(t), store.Nodes, "n0")
	if err != nil {
		t.Fatal(err)
	}
	now := strings.Split(node.GetResourceVersion(), "-")[2]
	ctx := patient(t) // on a busy machine, all together take longer than one call
	var writing sync.WaitGroup
	for i := range nodes {
		writing.Go(func() {
			pre := store.Preconditions{Term: term, Unchanged: []store.Position{{Kind: store.Leases, Version: now}}}
			want := error(nil)
			if i%3 == 1 {
				pre.Term, want = deposed, store.ErrDeposed
			}
			if err := served(ctx, func() error { return f.Delete(ctx, store.Nodes, fmt.Sprint("n", i), pre, "") }); !errors.Is(err, want) && (want != nil || !errors.Is(err, controlplane.ErrNotFound)) { // an answer may be lost
				t.Errorf("Delete(n%d) = %v, want %v", i, err, want)
			}
		})
	}
	writing.Wait()
	for i := range nodes {
		o, err := f.Get(patient(t), store.Nodes, fmt.Sprint("n", i))
		switch {
		case i%3 == 0 && !errors.Is(err, controlplane.ErrNotFound):
			t.Errorf("Get(n%d) = %v, want that it was removed", i, err)
		case i%3 > 0 && (err != nil || (o.GetDeletionTimestamp() != nil) != (i%3 == 2)):
			t.Errorf("Get(n%d) = %v, %v, want its deletion requested: %v", i, o, err, i%3 == 2)
		}
	}
}

// TestAWriteIsNotInOneTransactionWithAChangeOfWhatItCompares deletes each of many objects while
// another write requires it. In one transaction, the two would not see each other.
func TestAWriteIsNotInOneTransactionWithAChangeOfWhatItCompares(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	f := fleetAt(t, c, "/hostler")
	const pairs = 60
	put := func(name string, finalizers ...string) store.Object {
		value, err := store.Nodes.Encode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Finalizers: finalizers}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Put(t.Context(), "/hostler/nodes/"+name, string(value)); err != nil {
			t.Fatal(err)
		}
		o, err := f.Get(patient(t), store.Nodes, name)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	revision := func(name string) string {
		o, err := f.Get(patient(t), store.Nodes, name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(o.GetResourceVersion(), "-")[2]
	}
	var versions []string
	for i := range pairs {
		versions = append(versions, put(fmt.Sprint("owner", i), "example.com/f").GetResourceVersion())
		put(fmt.Sprint("dependent", i), "example.com/f")
	}
	unchanged := []store.Position{{Kind: store.Leases, Version: revision(fmt.Sprint("dependent", pairs-1))}}
	ctx := patient(t)
	var writing sync.WaitGroup
	for i := range pairs {
		owner := store.Reference{Kind: store.Nodes, Name: fmt.Sprint("owner", i), UID: "u", Version: versions[i]}
		writing.Go(func() {
			if err := served(ctx, func() error {
				return f.Delete(ctx, store.Nodes, owner.Name, store.Preconditions{Unchanged: unchanged}, "")
			}); err != nil {
				t.Errorf("Delete(%s) = %v, want no error", owner.Name, err)
			}
		})
		writing.Go(func() {
			err := served(ctx, func() error {
				return f.Delete(ctx, store.Nodes, fmt.Sprint("dependent", i), store.Preconditions{Unchanged: unchanged, Others: []store.Reference{owner}}, "")
			})
			if err != nil && !errors.Is(err, controlplane.ErrConflict) {
				t.Errorf("Delete(dependent%d) = %v, want no error or a conflict", i, err)
			}
		})
	}
	writing.Wait()
	for i := range pairs {
		if owner, dependent := revision(fmt.Sprint("owner", i)), revision(fmt.Sprint("dependent", i)); owner == dependent {
			t.Errorf("owner%d and dependent%d were changed at one revision", i, i)
		}
	}
}

// TestAWriteThatTimedOutIsNotMadeTwice stops etcd while writes that compare whole kinds are in
// batches, or wait for the batch before theirs. All time out and are repeated. Each compares the
// version of its object, so only one attempt is stored.
func TestAWriteThatTimedOutIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	for i := range 5 { // on a busy machine, all callers may give up before their writes are sent
		if writesThatTimeOut(t, c, fmt.Sprint("/fleets/", i)) {
			return
		}
	}
	t.Error("no write was stored after it had timed out")
}

// writesThatTimeOut reports whether a write was stored after it had timed out.
func writesThatTimeOut(t *testing.T, c *bed.Cluster, prefix string) bool {
	t.Helper()
	f := fleetAt(t, c, prefix)
	const nodes = 200
	var stored []store.Object
	for i := range nodes {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), UID: "u", Finalizers: []string{metav1.FinalizerOrphanDependents, "example.com/f"}}}
		created, err := f.Create(patient(t), store.Nodes, o)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, created)
	}
	now := strings.Split(stored[nodes-1].GetResourceVersion(), "-")[2]
	var attempts atomic.Int64
	release := func(ctx context.Context, o store.Object, read func()) error { // as the garbage collector does
		pre := store.Preconditions{UID: o.GetUID(), Version: o.GetResourceVersion(), Unchanged: []store.Position{{Kind: store.Leases, Version: now}}}
		_, err := f.Update(ctx, store.Nodes, o.GetName(), pre, func(o store.Object) error {
			read()
			o.SetFinalizers([]string{"example.com/f"})
			o.SetAnnotations(map[string]string{"attempt": fmt.Sprint(attempts.Add(1))})
			return nil
		})
		return err
	}
	stopped := make(chan struct{})
	var reading, writing sync.WaitGroup
	reading.Add(nodes)
	for i, o := range stored {
		writing.Go(func() {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var once sync.Once
			err := release(ctx, o, func() {
				once.Do(reading.Done)
				<-stopped
				// From 1 ms to 2 s: some callers give up before their write is sent, and on any machine others after that.
				time.AfterFunc(time.Millisecond<<(i%12), func() { cancel(context.DeadlineExceeded) })
			})
			once.Do(reading.Done)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Update(%s) = %v while etcd is stopped, want that it timed out", o.GetName(), err)
			}
		})
	}
	reading.Wait()
	if err := c.Members[0].Pause(); err != nil {
		t.Fatal(err)
	}
	close(stopped)
	writing.Wait()
	if err := c.Members[0].Continue(); err != nil {
		t.Fatal(err)
	}
	var conflicts atomic.Int64
	ctx := patient(t) // on a busy machine, all together take longer than one call
	for _, o := range stored {
		writing.Go(func() {
			err := served(ctx, func() error { return release(ctx, o, func() {}) })
			if errors.Is(err, controlplane.ErrConflict) {
				conflicts.Add(1)
			}
			if err != nil && !errors.Is(err, controlplane.ErrConflict) {
				t.Errorf("Update(%s) = %v, want no error or a conflict", o.GetName(), err)
			}
		})
	}
	writing.Wait()
	for _, o := range stored {
		key := prefix + "/nodes/" + o.GetName()
		text, err := c.Ctl(t.Context(), "get", key, "-w", "fields")
		if err != nil || !strings.Contains(text, "\"Version\" : 2\n") || !strings.Contains(text, `[\"example.com/f\"]`) {
			t.Errorf("%s = %s, %v, want one write after its creation, without the finalizer", key, text, err)
		}
	}
	return conflicts.Load() > 0
}

// TestAHostThatWritesFailsNoWriteOfOthers makes many writes at a time. Half of them require that a host has written
// nothing, which it has.
func TestAHostThatWritesFailsNoWriteOfOthers(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	f := fleetAt(t, c, "/hostler")
	const nodes = 40
	for i := range nodes {
		value, err := store.Nodes.Encode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), UID: "u"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Put(t.Context(), fmt.Sprint("/hostler/nodes/n", i), string(value)); err != nil {
			t.Fatal(err)
		}
	}
	node, err := f.Get(patient(t), store.Nodes, fmt.Sprint("n", nodes-1))
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Split(node.GetResourceVersion(), "-")[2]
	if err := c.Put(t.Context(), "/hostler/objects/pods/mallory/shop/p", "{}"); err != nil {
		t.Fatal(err)
	}
	ctx := patient(t)
	var writing sync.WaitGroup
	for i := range nodes {
		writing.Go(func() {
			at, want := store.Position{Kind: store.Objects, Version: before, ByPeople: true}, error(nil)
			if i%2 == 0 {
				at.Host, want = "mallory", controlplane.ErrConflict
			}
			if err := served(ctx, func() error {
				return f.Delete(ctx, store.Nodes, fmt.Sprint("n", i), store.Preconditions{Unchanged: []store.Position{at}}, "")
			}); !errors.Is(err, want) && (want != nil || !errors.Is(err, controlplane.ErrNotFound)) { // an answer may be lost
				t.Errorf("Delete(n%d) = %v, want %v", i, err, want)
			}
		})
	}
	writing.Wait()
}
