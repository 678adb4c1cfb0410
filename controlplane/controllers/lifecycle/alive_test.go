package lifecycle_test

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/store"
)

// TestWhatProvesThatAHostIsAlive has a server that follows the Leases, and a store that answers again since a moment.
func TestWhatProvesThatAHostIsAlive(t *testing.T) {
	for name, c := range map[string]struct {
		change func(cache *lifecycle.Cache, put func(host string)) // after the list, confirmed at the moment
		host   string                                              // n by default
		uid    types.UID                                           // uid-1 by default
		alive  bool
		busy   bool // it has not said that it is not amid a reboot
	}{
		"its Lease exists":      {},
		"its Lease was renewed": {alive: true, change: func(_ *lifecycle.Cache, put func(string)) { put("n") }},
		"its Lease was deleted": {change: func(cache *lifecycle.Cache, _ func(string)) { cache.Leases().Delete("n") }},
		"its Lease was deleted, and created again": {alive: true, change: func(cache *lifecycle.Cache, put func(string)) {
			cache.Leases().Delete("n")
			put("n")
		}},
		"the same Lease is reported again": {change: func(cache *lifecycle.Cache, put func(string)) {
			cache.Leases().Set("n", leaseOf("n", time.Now().Add(-time.Minute)))
		}},
		"a read that may be older has found a renewal": {change: func(cache *lifecycle.Cache, _ func(string)) {
			cache.Checked("n", time.Now(), leaseOf("n", time.Now()), nil)
		}},
		"its Lease was renewed amid a reboot": {alive: true, busy: true, change: func(cache *lifecycle.Cache, _ func(string)) {
			lease := leaseOf("n", time.Now())
			lease.Annotations = map[string]string{controlplane.AnnotationRebooting: "true"}
			cache.Leases().Set("n", lease)
		}},
		"its Lease was written, and cannot be read": {alive: true, busy: true, change: func(cache *lifecycle.Cache, _ func(string)) {
			cache.Leases().Unreadable("n", &store.UnreadableError{Version: "2"})
		}},
		"another host renewed": {change: func(_ *lifecycle.Cache, put func(string)) { put("other") }},
		"it reported without a Lease": {alive: true, change: func(cache *lifecycle.Cache, _ func(string)) {
			cache.Leases().Delete("n")
			node := readyNode("n", "a")
			node.UID = "uid-1"
			node.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
			cache.Nodes().Set("n", node)
		}},
		"it reported": {alive: true, busy: true, change: func(cache *lifecycle.Cache, _ func(string)) {
			node := readyNode("n", "a")
			node.UID = "uid-1"
			node.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
			cache.Nodes().Set("n", node)
		}},
		"a Node with another UID has its name": {uid: "another", change: func(_ *lifecycle.Cache, put func(string)) { put("n") }},
		"there is no Node":                     {host: "other", change: func(_ *lifecycle.Cache, put func(string)) { put("other") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := lifecycle.NewCache(true, lifecycle.DefaultZoneLabels())
				put := func(host string) { cache.Leases().Set(host, leaseOf(host, time.Now())) }
				node := readyNode("n", "a")
				node.UID = "uid-1"
				cache.Nodes().Begin()
				cache.Nodes().Set("n", node)
				cache.Nodes().Synced()
				cache.Leases().Begin()
				put("n")
				put("other")
				cache.Leases().Synced()
				time.Sleep(time.Minute)
				since := time.Now()
				store.Confirmed(cache.Nodes(), since)
				store.Confirmed(cache.Leases(), since)
				if c.change != nil {
					c.change(cache, put)
				}
				host, uid := c.host, c.uid
				if host == "" {
					host = "n"
				}
				if uid == "" {
					uid = "uid-1"
				}
				if alive, idle := cache.Alive(host, uid, since); alive != c.alive || idle != (c.alive && !c.busy) {
					t.Errorf("Alive() = %t, idle = %t, want %t and that it is busy = %t", alive, idle, c.alive, c.busy)
				}
				if alive, idle := cache.Alive(host, uid, since.Add(time.Nanosecond)); alive || idle {
					t.Error("Alive() = true, want that what was stored before the store answered again is no proof")
				}
			})
		})
	}
}

func leaseOf(host string, renewed time.Time) *coordinationv1.Lease {
	seconds, at := int32(40), metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: host}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &at}}
}
