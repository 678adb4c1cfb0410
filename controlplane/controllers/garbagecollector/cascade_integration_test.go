//go:build integration

package garbagecollector_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/store"
	bed "hostler.io/hostler/test/etcd"
)

// TestTreesAreDeletedWithFewOperationsInATransaction deletes a tree of 421 objects with each cascade, on a
// cluster whose --max-txn-ops is enough for one write, and for no batch. An object with more absent owners
// than a write can compare there is named, with what to do.
func TestTreesAreDeletedWithFewOperationsInATransaction(t *testing.T) {
	c := bed.For(t, bed.Options{Flags: []string{"--max-txn-ops=8"}})
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	f := fleet(t, c)
	collector := collect(t, f, "a")
	const folder = prefix + "/objects/things/"
	put := func(name string, owners ...string) {
		t.Helper()
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Thing"}}
		o.Name, o.UID = name, uid(name)
		block := true
		for _, owner := range owners {
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Thing", Name: owner, UID: uid(owner), BlockOwnerDeletion: &block})
		}
		if _, err := client.Put(ctx, folder+name, text(o)); err != nil {
			t.Fatal(err)
		}
	}
	stored := func() (objects int, text string) {
		t.Helper()
		answer, err := client.Get(ctx, folder, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range answer.Kvs {
			text += string(kv.Value)
		}
		return len(answer.Kvs), text
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%s: not in time; report = %+v", what, collector.Report())
			}
		}
	}
	for _, one := range []struct {
		policy metav1.DeletionPropagation
		left   int
	}{{background, 0}, {foreground, 0}, {orphan, 420}} {
		put("root")
		for i := range 20 {
			child := fmt.Sprint("c", i)
			put(child, "root")
			for n := range 20 {
				put(fmt.Sprint(child, "-", n), child)
			}
		}
		until("the tree is known", func() bool { return collector.Report().Objects == 421 })
		if err := f.Delete(ctx, store.Objects, "things/root", store.Preconditions{}, one.policy); err != nil {
			t.Fatal(err)
		}
		until(fmt.Sprint(one.policy), func() bool { objects, _ := stored(); return objects == one.left })
	}
	if _, text := stored(); strings.Contains(text, string(uid("root"))) {
		t.Error("an orphan refers to its former owner")
	}
	put("many", "gone1", "gone2", "gone3", "gone4")
	until("an object with many owners is named", func() bool {
		err := collector.Report().Failing["things/many"]
		return err != nil && strings.Contains(err.Error(), "--max-txn-ops=128")
	})
}
