package lifecycle_test

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/store"
)

// TestWhenAHostCountsAsDead has what a server sees of host n, and of its Lease.
func TestWhenAHostCountsAsDead(t *testing.T) {
	type see func(*lifecycle.Cache)
	wait := func(d time.Duration) see { return func(*lifecycle.Cache) { time.Sleep(d) } }
	node := func(uid types.UID, ready corev1.ConditionStatus) see { // reports now; or never, if ready is empty
		return func(c *lifecycle.Cache) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid}}
			if ready != "" {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.Now()}}
			}
			c.Nodes().Set("n", n)
		}
	}
	silent := func(c *lifecycle.Cache) { // Unknown, and without any report
		c.Nodes().Set("n", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}})
	}
	leaseOf := func(seconds int32) *coordinationv1.Lease { // without a duration, if seconds is 0
		now := metav1.NowMicro()
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
		if seconds > 0 {
			l.Spec.LeaseDurationSeconds = &seconds
		}
		return l
	}
	lease := func(seconds int32) see {
		return func(c *lifecycle.Cache) { c.Leases().Set("n", leaseOf(seconds)) }
	}
	ends := func(c *lifecycle.Cache) { c.Leases().Delete("n") }
	gone := func(c *lifecycle.Cache) { c.Checked("n", time.Now(), nil, nil) }
	unreadable := func(version string) see {
		return func(c *lifecycle.Cache) { c.Leases().Unreadable("n", &store.UnreadableError{Version: version}) }
	}
	foundUnreadable := func(version string) see {
		return func(c *lifecycle.Cache) { c.Checked("n", time.Now(), nil, &store.UnreadableError{Version: version}) }
	}
	unlisted := func(c *lifecycle.Cache) { c.Leases().Begin(); c.Leases().Synced() }
	const (
		ready, notReady, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
		sec                      = time.Second
	)
	for name, c := range map[string]struct {
		keepsLeases bool
		sees        []see
		since       time.Duration // see lifecycle.Clock; 0 for never
		want        time.Duration // after the start
	}{
		"a Node without a status":                  {sees: []see{node("u", "")}, want: 60 * sec},
		"one that is written again":                {sees: []see{node("u", ""), wait(5 * sec), node("u", "")}, want: 60 * sec},
		"one that is registered again":             {sees: []see{node("u", ""), wait(5 * sec), node("v", "")}, want: 65 * sec},
		"one after the store was away":             {sees: []see{node("u", "")}, since: 30 * sec, want: 90 * sec},
		"one that is Unknown already":              {sees: []see{silent}, since: 30 * sec, want: 90 * sec},
		"a Lease that is not renewed":              {sees: []see{node("u", ready), lease(40)}, want: 40 * sec},
		"a Lease that is renewed":                  {sees: []see{node("u", ready), lease(40), wait(10 * sec), lease(40)}, want: 50 * sec},
		"a Lease that lasts for too long":          {sees: []see{node("u", ready), lease(3601)}, want: 50 * sec},
		"a Lease that lasts for an hour":           {sees: []see{node("u", ready), lease(3600)}, want: 3600 * sec},
		"a Lease without a duration":               {sees: []see{node("u", ready), lease(0)}, want: 50 * sec},
		"its duration has changed":                 {sees: []see{node("u", ready), lease(40), wait(10 * sec), lease(80)}, want: 90 * sec},
		"a Lease that has ended":                   {sees: []see{node("u", ready), lease(40), wait(10 * sec), ends}, want: 40 * sec},
		"one that was not found":                   {sees: []see{node("u", ready), lease(40), wait(10 * sec), gone}, want: 40 * sec},
		"one that was created again":               {sees: []see{node("u", ready), lease(40), wait(10 * sec), ends, wait(5 * sec), lease(40)}, want: 55 * sec},
		"its host has reported since":              {sees: []see{node("u", ready), lease(40), wait(10 * sec), ends, wait(35 * sec), node("u", ready)}, want: 85 * sec},
		"another Node has reported since":          {sees: []see{node("u", ready), lease(40), wait(10 * sec), ends, wait(35 * sec), node("v", ready)}, want: 85 * sec},
		"another Node is Unknown":                  {sees: []see{node("u", ready), lease(40), wait(10 * sec), ends, wait(35 * sec), node("v", unknown)}, want: 85 * sec},
		"the store was away before its end":        {sees: []see{node("u", ready), lease(40), wait(10 * sec), ends}, since: 30 * sec, want: 70 * sec},
		"nobody saw its end":                       {sees: []see{node("u", ready), lease(40), wait(10 * sec), unlisted}, since: 30 * sec, want: 70 * sec},
		"a Node that had no time for a Lease":      {sees: []see{wait(5 * sec), node("u", ready)}, want: 55 * sec},
		"one that was Unknown without a Lease":     {sees: []see{wait(5 * sec), node("u", unknown)}, want: 55 * sec},
		"no renewal":                               {keepsLeases: true, sees: []see{node("u", ready), lease(40)}, want: 50 * sec},
		"no renewal of a long Lease":               {keepsLeases: true, sees: []see{node("u", ready), lease(100)}, want: 100 * sec},
		"no renewal of a Lease that is too long":   {keepsLeases: true, sees: []see{node("u", ready), lease(3601)}, want: 50 * sec},
		"a renewal":                                {keepsLeases: true, sees: []see{node("u", ready), lease(40), wait(10 * sec), lease(40)}, want: 60 * sec},
		"a report":                                 {keepsLeases: true, sees: []see{node("u", ready), lease(40), wait(10 * sec), node("u", notReady)}, want: 60 * sec},
		"no renewal since the store answers again": {keepsLeases: true, sees: []see{node("u", ready), lease(40)}, since: 30 * sec, want: 80 * sec},
		"no renewal of a host that is Unknown":     {keepsLeases: true, sees: []see{node("u", unknown), lease(40)}, since: 30 * sec, want: 80 * sec},
		"a Lease that cannot be read":              {sees: []see{node("u", ready), unreadable("1")}, want: 50 * sec},
		"one that could be read before":            {sees: []see{node("u", ready), lease(40), wait(10 * sec), unreadable("2")}, want: 50 * sec},
		"one that is reported again":               {sees: []see{node("u", ready), unreadable("1"), wait(10 * sec), unreadable("1")}, want: 50 * sec},
		"one that is read again":                   {sees: []see{node("u", ready), unreadable("1"), wait(10 * sec), foundUnreadable("1")}, want: 50 * sec},
		"an unreadable one that is written again":  {sees: []see{node("u", ready), unreadable("1"), wait(10 * sec), unreadable("2")}, want: 60 * sec},
		"one that was written again, by a read":    {keepsLeases: true, sees: []see{node("u", ready), unreadable("1"), wait(10 * sec), foundUnreadable("2")}, want: 60 * sec},
		"one that can be read again":               {sees: []see{node("u", ready), unreadable("1"), wait(10 * sec), lease(40)}, want: 50 * sec},
		"a renewal of a host that is Unknown":      {keepsLeases: true, sees: []see{node("u", unknown), lease(40), wait(10 * sec), lease(40)}, want: 60 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, cache := time.Now(), lifecycle.NewCache(!c.keepsLeases, nil)
				after := func(d time.Duration) time.Time {
					if d == 0 {
						return time.Time{}
					}
					return start.Add(d)
				}
				for _, see := range c.sees {
					see(cache)
				}
				hosts, _ := cache.Hosts(lifecycle.DefaultPolicy(), lifecycle.Clock{Since: after(c.since)})
				at := hosts[0].DeadAt
				if !at.Equal(start.Add(c.want)) {
					t.Errorf("DeadAt = %v (%v after the start), want %v", at, at.Sub(start), c.want)
				}
			})
		})
	}
}

func TestSinceWhenTheReadyOfANodeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, cache := time.Now(), lifecycle.NewCache(true, nil)
		for i, c := range []struct {
			uid   types.UID
			ready corev1.ConditionStatus
			want  time.Duration
		}{
			{"u", corev1.ConditionTrue, 0},
			{"u", corev1.ConditionTrue, 0},
			{"u", corev1.ConditionFalse, 2 * time.Second},
			{"u", corev1.ConditionFalse, 2 * time.Second},
			{"v", corev1.ConditionFalse, 4 * time.Second},
		} {
			cache.Nodes().Set("n", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: c.uid}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: c.ready}}}})
			hosts, _ := cache.Hosts(lifecycle.DefaultPolicy(), lifecycle.Clock{})
			if got := hosts[0].ChangedAt.Sub(start); got != c.want {
				t.Errorf("report %d: ChangedAt = %v after the start, want %v", i, got, c.want)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestHowLongAnEndedLeaseIsKnown has a host whose Node and Lease are deleted. It may be alive, and register again.
func TestHowLongAnEndedLeaseIsKnown(t *testing.T) {
	for _, c := range []struct{ later, grace time.Duration }{{40 * time.Second, 40 * time.Second}, {40*time.Second + 1, 50 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			seconds, cache := int32(40), lifecycle.NewCache(true, nil)
			register := func() {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}}}
				cache.Nodes().Set("n", n)
			}
			cache.Nodes().Begin()
			register()
			cache.Nodes().Synced()
			cache.Leases().Set("n", &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds}})
			cache.Nodes().Delete("n")
			cache.Leases().Delete("n")
			time.Sleep(c.later)
			cache.Hosts(lifecycle.DefaultPolicy(), lifecycle.Clock{})
			register()
			hosts, _ := cache.Hosts(lifecycle.DefaultPolicy(), lifecycle.Clock{})
			if got := time.Until(hosts[0].DeadAt); got != c.grace {
				t.Errorf("%v later, the host is dead after %v, want %v", c.later, got, c.grace)
			}
		})
	}
}
