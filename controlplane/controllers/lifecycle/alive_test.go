package lifecycle_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/store"
)

// TestWhatProvesThatAHostIsAlive has a host that sent no report since the store answered again. Only a Lease that the
// store would have ended proves that the host is alive.
func TestWhatProvesThatAHostIsAlive(t *testing.T) {
	since := time.Now().Add(time.Hour) // after all that the cache has seen
	seconds := func(s int32) *int32 { return &s }
	const slack = 5 * time.Second
	for name, c := range map[string]struct {
		keepsLeases bool
		noLease     bool
		duration    *int32
		host        string    // default: n
		uid         types.UID // default: that of the Node
		confirmed   time.Duration
		alive       bool
	}{
		"the store had the time to end the Lease":          {duration: seconds(40), confirmed: 40*time.Second + slack, alive: true},
		"the store had not enough time":                    {duration: seconds(40), confirmed: 40*time.Second + slack - 1},
		"the longest Lease":                                {duration: seconds(3600), confirmed: time.Hour + slack, alive: true},
		"the longest Lease, too early":                     {duration: seconds(3600), confirmed: time.Hour + slack - 1},
		"a Lease that is too long":                         {duration: seconds(3601), confirmed: 1000 * time.Hour},
		"a Lease without a duration":                       {confirmed: 1000 * time.Hour},
		"a Lease with a duration of 0":                     {duration: seconds(0), confirmed: 1000 * time.Hour},
		"there is no Lease":                                {noLease: true, confirmed: 1000 * time.Hour},
		"the store ends no Leases":                         {keepsLeases: true, duration: seconds(40), confirmed: 1000 * time.Hour},
		"a Node with another UID has the name of the host": {uid: "another", duration: seconds(40), confirmed: 1000 * time.Hour},
		"there is no Node":                                 {host: "other", duration: seconds(40), confirmed: 1000 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			cache := lifecycle.NewCache(!c.keepsLeases, lifecycle.DefaultZoneLabels())
			node := readyNode("n", "a")
			node.UID = "uid-1"
			cache.Nodes().Set("n", node)
			if !c.noLease {
				for _, name := range []string{"n", "other"} {
					cache.Leases().Set(name, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: c.duration}})
				}
			}
			host, uid := c.host, c.uid
			if host == "" {
				host = "n"
			}
			if uid == "" && host == "n" {
				uid = "uid-1"
			}
			if alive := cache.Alive(host, uid, store.Fresh{Since: since, Confirmed: since.Add(c.confirmed)}); alive != c.alive {
				t.Errorf("Alive() = %t, want %t", alive, c.alive)
			}
		})
	}
	if controlplane.LongestLease != time.Hour {
		t.Errorf("LongestLease = %v: use it in the cases of this test", controlplane.LongestLease)
	}
}
