//go:build integration

package etcd_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	bed "hostler.io/hostler/test/etcd"
)

// hosts counts what a Follow reports of each host.
type hosts struct {
	mu         sync.Mutex
	objects    map[string]map[string]bool // by host
	unreadable map[string]string
	synced     bool
}

func (h *hosts) change(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
}

func (h *hosts) Begin() {
	h.change(func() { h.objects, h.unreadable, h.synced = map[string]map[string]bool{}, map[string]string{}, false })
}
func (h *hosts) Synced() { h.change(func() { h.synced = true }) }
func (h *hosts) Unreadable(name string, err error) {
	h.change(func() { h.unreadable[name] = err.Error() })
}

func (h *hosts) Set(name string, _ store.Object) {
	host, _, _ := strings.Cut(name, "/")
	h.change(func() {
		if h.objects[host] == nil {
			h.objects[host] = map[string]bool{}
		}
		h.objects[host][name] = true
		delete(h.unreadable, name)
	})
}

func (h *hosts) Delete(name string) {
	host, _, _ := strings.Cut(name, "/")
	h.change(func() {
		delete(h.objects[host], name)
		delete(h.unreadable, name)
	})
}

// TestWhatAHostWritesInExcessIsLeftOut has hosts with too many objects, with too large ones, and with many owners.
func TestWhatAHostWritesInExcessIsLeftOut(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	f := fleetAt(t, c, "/hostler")
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	put := func(host, name, owners string, padding int) {
		t.Helper()
		value := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":%q,"uid":"%s-%s","annotations":{"a":%q},"ownerReferences":[%s]},"spec":{"nodeName":%q}}`,
			name, host, name, strings.Repeat("x", padding), owners, host)
		if _, err := client.Put(t.Context(), "/hostler/objects/pods/"+host+"/shop/"+name, value); err != nil {
			t.Fatal(err)
		}
	}
	const most, more = controlplane.MostHostObjects, 50
	for i := range most + more {
		put("many", fmt.Sprintf("p%04d", i), "", 0)
	}
	for i := range 8 {
		put("large", fmt.Sprintf("p%d", i), "", 900<<10)
	}
	put("owned", "p", strings.Join(slices.Repeat([]string{`{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}`}, controlplane.MostEntries+1), ","), 0)
	put("well", "p", "", 0)

	h := &hosts{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Follow(ctx, store.Pods(true), store.AllChanges, h) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	want := func(what string, counts map[string]int, unreadable ...string) {
		t.Helper()
		last := ""
		defer func() {
			if t.Failed() {
				t.Log(last)
			}
		}()
		eventually(t, what, func(context.Context) (ok bool) {
			h.change(func() {
				got := map[string]int{}
				for host, objects := range h.objects {
					got[host] = len(objects)
				}
				last = fmt.Sprint(got, h.unreadable)
				ok = h.synced && len(h.unreadable) == len(unreadable)
				for host, n := range counts {
					ok = ok && got[host] == n
				}
				for _, name := range unreadable {
					ok = ok && h.unreadable[name] != ""
				}
			})
			return ok
		})
	}
	want("the surplus is left out", map[string]int{"many": most, "large": 2, "owned": 0, "well": 1}, "many/", "large/", "owned/shop/p")
	put("many", "late", "", 0)
	put("well", "late", "", 0)
	want("a later one is surplus, too", map[string]int{"many": most, "well": 2}, "many/", "large/", "owned/shop/p")
	for i := range more {
		if _, err := client.Delete(t.Context(), fmt.Sprintf("/hostler/objects/pods/many/shop/p%04d", most+i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Delete(t.Context(), "/hostler/objects/pods/many/shop/late"); err != nil {
		t.Fatal(err)
	}
	want("the surplus is gone", map[string]int{"many": most, "well": 2}, "large/", "owned/shop/p")
}
