package lifecycle_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// sent reports whether the signal was sent since the last call.
func sent(s loop.Signal) bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

// TestWhichChangesOfANodeMatter has a Node that changes. What matters is decided upon at once, not only by the next
// round.
func TestWhichChangesOfANodeMatter(t *testing.T) {
	condition := func(kind corev1.NodeConditionType) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse})
		}
	}
	for name, c := range map[string]struct {
		edit func(*corev1.Node)
		want bool
	}{
		"a heartbeat":                {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"another label":              {func(n *corev1.Node) { n.Labels["a"] = "b" }, false},
		"another UID":                {func(n *corev1.Node) { n.UID = "v" }, true},
		"another zone":               {func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z" }, true},
		"another region":             {func(n *corev1.Node) { n.Labels[corev1.LabelTopologyRegion] = "r" }, true},
		"it is excluded":             {func(n *corev1.Node) { n.Labels[lifecycle.LabelExclude] = "" }, true},
		"the time of its last taint": {func(n *corev1.Node) { n.Annotations[lifecycle.AnnotationTainted] = "2026-01-02T03:04:05Z" }, true},
		"a cordon":                   {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"a taint":                    {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} }, true},
		"it is not ready":            {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"another time of Ready":      {func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.Now() }, true},
		"MemoryPressure":             {condition(corev1.NodeMemoryPressure), true},
		"DiskPressure":               {condition(corev1.NodeDiskPressure), true},
		"PIDPressure":                {condition(corev1.NodePIDPressure), true},
		"NetworkUnavailable":         {condition(corev1.NodeNetworkUnavailable), true},
		"a condition of others":      {condition("Custom"), false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := loop.NewSignal()
			cache := lifecycle.NewCache(true, lifecycle.DefaultZoneLabels(), changed)
			node := func(version string) *corev1.Node {
				return &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: version, Labels: map[string]string{}, Annotations: map[string]string{}},
					Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
				}
			}
			cache.Nodes().Set("n", node("1"))
			if !sent(changed) {
				t.Error("a new Node is no change")
			}
			now := node("2")
			c.edit(now)
			cache.Nodes().Set("n", now)
			if got := sent(changed); got != c.want {
				t.Errorf("change = %t, want %t", got, c.want)
			}
		})
	}
}

// TestWhichChangesOfALeaseMatter has a Lease that changes.
func TestWhichChangesOfALeaseMatter(t *testing.T) {
	for name, c := range map[string]struct {
		later   time.Duration
		seconds int32
		want    bool
	}{
		"a renewal":                        {10 * time.Second, 40, false},
		"another duration":                 {0, 20, true},
		"a renewal with another duration":  {10 * time.Second, 20, true},
		"a renewal that has no duration":   {10 * time.Second, 0, true},
		"the same Lease in a list of them": {0, 40, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := loop.NewSignal()
			cache := lifecycle.NewCache(true, lifecycle.DefaultZoneLabels(), changed)
			start := time.Now()
			set := func(after time.Duration, seconds int32) {
				at := metav1.NewMicroTime(start.Add(after))
				l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
				if seconds > 0 {
					l.Spec.LeaseDurationSeconds = &seconds
				}
				cache.Leases().Set("n", l)
			}
			set(0, 40)
			if !sent(changed) {
				t.Error("a new Lease is no change")
			}
			set(c.later, c.seconds)
			if got := sent(changed); got != c.want {
				t.Errorf("change = %t, want %t", got, c.want)
			}
		})
	}
}

// TestAnAnswerFromBeforeAReportChangesNothing has a read of n's Lease that was requested before the watch reported the Lease,
// and is answered after that.
func TestAnAnswerFromBeforeAReportChangesNothing(t *testing.T) {
	lease := func(version string) *coordinationv1.Lease {
		now, seconds := metav1.NowMicro(), int32(40)
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: version}, Spec: coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &seconds}}
	}
	ends := func(c *lifecycle.Cache) { c.Leases().Delete("n") }
	isNotListed := func(c *lifecycle.Cache) { c.Leases().Begin(); c.Leases().Synced() }
	isRenewed := func(c *lifecycle.Cache) { c.Leases().Set("n", lease("2")) }
	malformed := func(version string) error { return &store.UnreadableError{Version: version} }
	isUnreadable := func(c *lifecycle.Cache) { c.Leases().Unreadable("n", malformed("2")) }
	old := lease("1")
	isWritten := func(c *lifecycle.Cache) {
		same := old.DeepCopy()
		same.ResourceVersion = "2"
		c.Leases().Set("n", same)
	}
	for name, c := range map[string]struct {
		report     func(*lifecycle.Cache)
		found      bool
		unreadable error
		reads      int // that are needed after the answer
	}{
		"it ends, and was found":                       {ends, true, nil, 1},
		"it ends, and was unreadable":                  {ends, false, malformed("1"), 1},
		"a list lacks it, it was found":                {isNotListed, true, nil, 1},
		"it is renewed, and was found":                 {isRenewed, true, nil, 1},
		"it is renewed, and was missing":               {isRenewed, false, nil, 1},
		"it is renewed, and was unreadable":            {isRenewed, false, malformed("1"), 1},
		"it is unreadable, and was found":              {isUnreadable, true, nil, 1},
		"it is unreadable, and was missing":            {isUnreadable, false, nil, 1},
		"it is unreadable, and was unreadable before":  {isUnreadable, false, malformed("1"), 1},
		"it is unreadable now, and was found so":       {isUnreadable, false, malformed("2"), 1},
		"it is written again, not renewed":             {isWritten, true, nil, 0}, // a host that does this all the time must not keep itself from being judged
		"it is written again, not renewed, was absent": {isWritten, false, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := lifecycle.NewCache(true, lifecycle.DefaultZoneLabels())
				cache.Nodes().Set("n", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}})
				cache.Leases().Set("n", old)
				time.Sleep(time.Minute) // it is over
				asked := time.Now()
				time.Sleep(time.Second)
				c.report(cache)
				of := func() (lifecycle.Host, []string) {
					_, suspects := cache.Hosts(lifecycle.DefaultPolicy(), lifecycle.Clock{Now: time.Now().Add(time.Hour)})
					before, _ := cache.Hosts(lifecycle.DefaultPolicy(), lifecycle.Clock{})
					return before[0], suspects
				}
				want, _ := of()
				time.Sleep(time.Second)
				var answer *coordinationv1.Lease
				if c.found {
					answer = old
				}
				cache.Checked("n", asked, answer, c.unreadable)
				got, suspects := of()
				if got.DeadAt != want.DeadAt || got.Lease != want.Lease || len(suspects) != c.reads {
					t.Errorf("after the answer: dead at %v, version %q, %d to read, want %v, %q, %d", got.DeadAt, got.Lease, len(suspects), want.DeadAt, want.Lease, c.reads)
				}
			})
		})
	}
}

// TestAnUnreadableLeaseThatIsListedAgainNeedsNoOtherRead has a read that is answered after the watch has listed the same state.
func TestAnUnreadableLeaseThatIsListedAgainNeedsNoOtherRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache, unreadable := lifecycle.NewCache(true, lifecycle.DefaultZoneLabels()), &store.UnreadableError{Version: "1"}
		cache.Nodes().Set("n", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}})
		cache.Leases().Unreadable("n", unreadable)
		time.Sleep(time.Minute)
		asked := time.Now()
		time.Sleep(time.Second)
		cache.Leases().Unreadable("n", unreadable)
		cache.Checked("n", asked, nil, unreadable)
		hosts, suspects := cache.Hosts(lifecycle.DefaultPolicy(), lifecycle.Clock{Now: time.Now()})
		if len(suspects) > 0 || hosts[0].DeadAt.IsZero() || hosts[0].DeadAt.After(asked) || hosts[0].Lease != "1" {
			t.Errorf("Hosts() = %+v, to read %v, want a host that is dead as long as its Lease has version 1", hosts, suspects)
		}
	})
}

// TestAnAnswerAmidAListIsReplacedByTheList has a read of n's Lease that was requested before a list, and is answered amid it. The
// list has no such Lease.
func TestAnAnswerAmidAListIsReplacedByTheList(t *testing.T) {
	for name, answer := range map[string]func(*lifecycle.Cache, time.Time){
		"it was found": func(c *lifecycle.Cache, asked time.Time) {
			c.Checked("n", asked, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}}, nil)
		},
		"it was unreadable": func(c *lifecycle.Cache, asked time.Time) { c.Checked("n", asked, nil, errors.New("malformed")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := lifecycle.NewCache(true, lifecycle.DefaultZoneLabels())
				cache.Nodes().Set("n", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}})
				cache.Leases().Set("n", &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}})
				time.Sleep(time.Second)
				asked := time.Now()
				cache.Leases().Begin()
				answer(cache, asked)
				cache.Leases().Synced()
				if hosts, _ := cache.Hosts(lifecycle.DefaultPolicy(), lifecycle.Clock{}); hosts[0].Lease != "" || len(cache.Unreadable()) > 0 {
					t.Errorf("the version of the Lease is %q, unreadable are %v, want none", hosts[0].Lease, cache.Unreadable())
				}
			})
		})
	}
}

// TestALeaseThatWasNotFoundIsNoProof has a Lease that ends, and a watch that does not report it. A write that needs the old
// version would fail again and again.
func TestALeaseThatWasNotFoundIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := lifecycle.NewCache(true, lifecycle.DefaultZoneLabels())
		cache.Nodes().Set("n", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}})
		cache.Leases().Set("n", &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}})
		time.Sleep(time.Second)
		cache.Checked("n", time.Now(), nil, nil)
		if hosts, _ := cache.Hosts(lifecycle.DefaultPolicy(), lifecycle.Clock{}); hosts[0].Lease != "" {
			t.Errorf("the version of the Lease is %q, want none", hosts[0].Lease)
		}
	})
}
