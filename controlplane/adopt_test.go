package controlplane_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

var (
	start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	here  = controlplane.Identity{MachineID: "machine-1", SystemUUID: "UUID-1"}
	there = controlplane.Identity{MachineID: "machine-2", SystemUUID: "UUID-2"}
)

func nodeOf(id controlplane.Identity, labels map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: id.MachineID, SystemUUID: id.SystemUUID}},
	}
}

func leaseOf(t *testing.T, id controlplane.Identity, renewed time.Time) *coordinationv1.Lease {
	t.Helper()
	lease, err := controlplane.NewLease("n", id, 40*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return controlplane.Renew(lease, renewed)
}

func registered(t *testing.T, node *corev1.Node) *corev1.Node {
	t.Helper()
	stored, err := controlplane.NewNode(node)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func TestClaimDecidesWhoseTheNodeIs(t *testing.T) {
	ages := start.Add(-365 * 24 * time.Hour)
	unknown := controlplane.Identity{}
	byKubelet := func(id, noted controlplane.Identity) *corev1.Node {
		node := registered(t, nodeOf(noted, nil))
		node.Status.NodeInfo = nodeOf(id, nil).Status.NodeInfo
		return node
	}
	clone := controlplane.Identity{MachineID: there.MachineID, SystemUUID: "UUID-3"}
	for name, tc := range map[string]struct {
		stored          *corev1.Node
		ours            controlplane.Identity
		lease           *coordinationv1.Lease
		takeover, watch bool // watch reports whether the Lease was watched for its whole duration
		others, refused bool
	}{
		"the same machine":                                  {stored: registered(t, nodeOf(here, nil)), ours: here, lease: leaseOf(t, here, start)},
		"the same machine, in capitals":                     {stored: registered(t, nodeOf(controlplane.Identity{SystemUUID: "uuid-1"}, nil)), ours: here, lease: leaseOf(t, there, start)},
		"another machine that was not watched":              {stored: registered(t, nodeOf(there, nil)), ours: here, lease: leaseOf(t, there, start), others: true, refused: true},
		"another machine whose clock is far behind":         {stored: registered(t, nodeOf(there, nil)), ours: here, lease: leaseOf(t, there, ages), others: true, refused: true},
		"another machine, with takeover":                    {stored: registered(t, nodeOf(there, nil)), ours: here, lease: leaseOf(t, there, start), takeover: true, others: true},
		"another machine that was watched":                  {stored: registered(t, nodeOf(there, nil)), ours: here, lease: leaseOf(t, there, start), watch: true, others: true},
		"another machine, watched, whose clock is ahead":    {stored: registered(t, nodeOf(there, nil)), ours: here, lease: leaseOf(t, there, start.Add(time.Hour)), watch: true, others: true},
		"another machine that has no lease":                 {stored: registered(t, nodeOf(there, nil)), ours: here, others: true, refused: true},
		"another machine without a lease, with takeover":    {stored: registered(t, nodeOf(there, nil)), ours: here, takeover: true, others: true},
		"this machine's kubelet, and no lease":              {stored: byKubelet(here, there), ours: here},
		"another machine known by a kubelet":                {stored: nodeOf(there, nil), ours: here, lease: leaseOf(t, unknown, start), others: true, refused: true},
		"another machine's kubelet on a node once ours":     {stored: byKubelet(there, here), ours: here, lease: leaseOf(t, unknown, start), others: true, refused: true},
		"this machine's kubelet on a node once another's":   {stored: byKubelet(here, there), ours: here, lease: leaseOf(t, unknown, start)},
		"another machine that has not written a status yet": {stored: byKubelet(here, there), ours: here, lease: leaseOf(t, there, start), others: true, refused: true},
		"another machine whose lease is ours by now":        {stored: registered(t, nodeOf(there, nil)), ours: here, lease: leaseOf(t, here, start), others: true},
		"a clone with the machine ID":                       {stored: registered(t, nodeOf(there, nil)), ours: clone, lease: leaseOf(t, there, start), others: true, refused: true},
		"a machine of which nothing is known":               {stored: registered(t, nodeOf(unknown, nil)), ours: here, lease: leaseOf(t, there, start)},
		"a machine whose firmware has no UUID":              {stored: registered(t, nodeOf(controlplane.Identity{MachineID: here.MachineID}, nil)), ours: here, lease: leaseOf(t, there, start)},
		"another machine, and a lease that nobody renewed":  {stored: registered(t, nodeOf(there, nil)), ours: here, lease: &coordinationv1.Lease{}, others: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			watch := controlplane.NewLeaseWatch(func() time.Time { return now })
			if tc.watch {
				watch.See(tc.lease)
				now = now.Add(40 * time.Second)
			}
			others, err := controlplane.Claim(tc.stored, nodeOf(tc.ours, nil), tc.lease, controlplane.RegisterOptions{Takeover: tc.takeover, Watch: watch})
			var identity *controlplane.IdentityError
			if refused := errors.As(err, &identity); others != tc.others || refused != tc.refused || !refused && err != nil {
				t.Fatalf("Claim() = %v, %v, want another's = %v, refused = %v", others, err, tc.others, tc.refused)
			}
			if tc.refused && (identity.Ours != tc.ours || identity.LeaseRenewed.IsZero() != (tc.lease == nil) || identity.Name != "n" || !identity.Watching() || !identity.Until.Equal(start.Add(40*time.Second))) {
				t.Errorf("Claim() = %+v, want name, both machines, the lease's time and until when it is watched", identity)
			}
			if others && !controlplane.Disputed(tc.stored, nodeOf(tc.ours, nil)) {
				t.Error("Disputed() = false, want true, so that the lease is read")
			}
		})
	}
}

// A living machine creates its Lease again, or writes its Node.
func TestAMachineWithoutALeaseIsWatched(t *testing.T) {
	stored, desired := registered(t, nodeOf(there, nil)), nodeOf(here, nil)
	for name, tc := range map[string]struct {
		lost bool
		long time.Duration
	}{
		"another machine":          {false, controlplane.DefaultLease},
		"one that took it from us": {true, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			watch := controlplane.NewLeaseWatch(func() time.Time { return now })
			watch.See(leaseOf(t, there, start)) // it was there before, and does not count as another renewal
			claim := func(stored *corev1.Node, after time.Duration, want *controlplane.IdentityError) {
				t.Helper()
				now = now.Add(after)
				_, err := controlplane.Claim(stored, desired, nil, controlplane.RegisterOptions{Watch: watch, Lost: tc.lost})
				identity, refused := errors.AsType[*controlplane.IdentityError](err)
				if refused != (want != nil) || refused && (identity.Renewed != want.Renewed || !identity.Until.Equal(now.Add(tc.long-want.Until.Sub(time.Time{})))) {
					t.Errorf("Claim() = %+v, %v, want refused %+v", identity, err, want)
				}
			}
			left := func(d time.Duration) time.Time { return time.Time{}.Add(tc.long - d) }
			claim(stored, 0, &controlplane.IdentityError{Until: left(tc.long)})
			claim(stored, tc.long-time.Second, &controlplane.IdentityError{Until: left(time.Second)})
			written := stored.DeepCopy()
			written.ResourceVersion = "2" // by another client
			claim(written, 0, &controlplane.IdentityError{Until: left(time.Second)})
			written.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Time{Time: start}}}
			claim(written, 0, &controlplane.IdentityError{Renewed: true, Until: left(tc.long)})
			now = now.Add(tc.long - time.Second)
			if _, err := controlplane.Claim(written, desired, leaseOf(t, there, now), controlplane.RegisterOptions{Watch: watch, Lost: tc.lost}); err == nil {
				t.Error("Claim() with a renewed Lease = no error, want refused")
			}
			claim(written, time.Second, &controlplane.IdentityError{Until: left(tc.long)}) // it is missing again
			claim(written, tc.long, nil)
		})
	}
}

// A keeper creates no Lease before the registration may take back a Node that was lost.
func TestALostNodeIsWatchedTheSameByBothLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		if _, err := fake.Register(t.Context(), nodeOf(there, nil), controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		p := policy(here)
		p.Watch = controlplane.NewLeaseWatch(nil)
		claim := func() error {
			stored, err := fake.Node(t.Context(), "n")
			if err == nil {
				_, err = controlplane.Claim(stored, nodeOf(here, nil), nil, controlplane.RegisterOptions{Watch: p.Watch, Lost: true})
			}
			return err
		}
		_ = claim()
		keeper, _ := keep(t, fake, p, quiet())
		for range 44 {
			after(20 * time.Second)
			if err := claim(); err == nil {
				t.Fatal("Claim() = no error before 15 minutes, want refused")
			}
		}
		if stats := keeper.Stats(); stats.Renewals != 0 {
			t.Errorf("renewals = %d before 15 minutes, want none", stats.Renewals)
		}
		after(30 * time.Second)
		if err := claim(); err != nil {
			t.Errorf("Claim() = %v after 15 minutes, want the Node", err)
		}
	})
}

func TestNoMachineCountsAsDeadWithoutAWatch(t *testing.T) {
	stored, lease := registered(t, nodeOf(there, nil)), leaseOf(t, there, start.Add(-time.Hour))
	_, err := controlplane.Claim(stored, nodeOf(here, nil), lease, controlplane.RegisterOptions{})
	var identity *controlplane.IdentityError
	if !errors.As(err, &identity) || identity.Watching() {
		t.Errorf("Claim() without a watch = %v, want an IdentityError that waits for nothing", err)
	}
}

func TestAdoptReconcilesOnlyWhatItSet(t *testing.T) {
	stored := registered(t, nodeOf(here, map[string]string{"mine": "1", "also": "1"}))
	stored.Labels["theirs"] = "1"
	stored.Spec = corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Unschedulable: true, Taints: []corev1.Taint{{Key: "theirs"}}}
	desired := nodeOf(here, map[string]string{"mine": "2", "new": "1"})
	desired.Spec = corev1.NodeSpec{ProviderID: "metal://1", Taints: []corev1.Taint{{Key: "configured"}}}
	desired.Status.Phase = corev1.NodeRunning

	node, err := controlplane.Adopt(stored, desired)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"mine": "2", "new": "1", "theirs": "1"}; !maps.Equal(node.Labels, want) {
		t.Errorf("labels = %v, want %v", node.Labels, want)
	}
	if s := node.Spec; s.PodCIDR != "10.0.0.0/24" || !s.Unschedulable || len(s.Taints) != 1 || s.Taints[0].Key != "theirs" || s.ProviderID != "metal://1" {
		t.Errorf("spec = %+v, want it as stored, with the provider ID filled in", s)
	}
	if node.Status.Phase != "" {
		t.Errorf("status = %+v, want it as stored", node.Status)
	}
	if stored.Labels["mine"] != "1" {
		t.Error("Adopt() changed the stored node")
	}

	desired.Labels = nil
	desired.Spec.ProviderID = "metal://2"
	node, err = controlplane.Adopt(node, desired)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"theirs": "1"}; !maps.Equal(node.Labels, want) {
		t.Errorf("labels without any configured = %v, want %v", node.Labels, want)
	}
	if node.Spec.ProviderID != "metal://1" {
		t.Errorf("provider ID = %s, want it kept", node.Spec.ProviderID)
	}
	again, err := controlplane.Adopt(node, desired)
	if err != nil || !maps.Equal(again.Annotations, node.Annotations) || !maps.Equal(again.Labels, node.Labels) {
		t.Errorf("Adopt() again = %v, %v, want no change", again, err)
	}
}

func TestAnInvalidListOfOwnedKeysKeepsAllKeys(t *testing.T) {
	stored := registered(t, nodeOf(here, map[string]string{"old": "1"}))
	stored.Annotations[controlplane.AnnotationOwned] = "{spoiled"
	node, err := controlplane.Adopt(stored, nodeOf(here, map[string]string{"new": "1"}))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"old": "1", "new": "1"}; !maps.Equal(node.Labels, want) {
		t.Errorf("labels = %v, want %v", node.Labels, want)
	}
}

// Another client that can write annotations could list hostler's own ones as keys to delete.
func TestIdentityAnnotationsAreNeverRemoved(t *testing.T) {
	stored := registered(t, nodeOf(here, nil))
	stored.Annotations[controlplane.AnnotationOwned] = `{"annotations":["` + controlplane.AnnotationMachineID + `"]}`
	node, err := controlplane.Adopt(stored, nodeOf(here, nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := controlplane.IdentityOf(node); got != here {
		t.Errorf("IdentityOf() = %v, want %v", got, here)
	}
}

func TestIdentityErrorSaysWhatToDo(t *testing.T) {
	err := &controlplane.IdentityError{Name: "n", Theirs: there, Ours: here, LeaseRenewed: start}
	for _, want := range []string{`"n"`, "machine-1", "UUID-1", "machine-2", "UUID-2", "2026-11-20T12:00:00Z", "node.name", "node.takeover"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Error() = %q, want it to contain %q", err, want)
		}
	}
	err.Until = start.Add(40 * time.Second)
	for _, want := range []string{"does not renew its lease before", "2026-11-20T12:00:40Z", "node.takeover"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Error() while the other is watched = %q, want it to contain %q", err, want)
		}
	}
	if err.Renewed = true; strings.Contains(err.Error(), "watched") {
		t.Errorf("Error() of a machine that is alive = %q, want no wait in it", err)
	}
}

func TestRenewTimeOnlyIncreases(t *testing.T) {
	for name, tc := range map[string]struct{ last, now, want time.Time }{
		"the first time":                     {time.Time{}, start.Add(1500 * time.Nanosecond), start.Add(time.Microsecond)},
		"time has passed":                    {start, start.Add(10 * time.Second), start.Add(10 * time.Second)},
		"no time has passed":                 {start, start, start.Add(time.Microsecond)},
		"less than the precision of the API": {start, start.Add(999 * time.Nanosecond), start.Add(time.Microsecond)},
		"the clock went back":                {start, start.Add(-time.Hour), start.Add(time.Microsecond)},
		"the clock went forward":             {start, start.Add(time.Hour), start.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			prev := &coordinationv1.Lease{}
			if !tc.last.IsZero() {
				prev.Spec.RenewTime = &metav1.MicroTime{Time: tc.last}
			}
			if got := controlplane.Renew(prev, tc.now).Spec.RenewTime; !got.Time.Equal(tc.want) {
				t.Errorf("Renew() = %v, want %v", got, tc.want)
			}
			if prev.Spec.RenewTime != nil && !prev.Spec.RenewTime.Time.Equal(tc.last) {
				t.Error("Renew() changed the lease that it was given")
			}
		})
	}
}

func TestNewLeaseWantsWholeSeconds(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Second, 500 * time.Millisecond, 1500 * time.Millisecond} {
		if lease, err := controlplane.NewLease("n", here, d); err == nil {
			t.Errorf("NewLease(%v) = %v, want an error", d, lease)
		}
	}
	lease, err := controlplane.NewLease("n", here, 40*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if lease.Namespace != "kube-node-lease" || lease.Name != "n" || *lease.Spec.HolderIdentity != "n" || *lease.Spec.LeaseDurationSeconds != 40 {
		t.Errorf("NewLease() = %v, want kubelet's shape", lease)
	}
}

func TestSetOwnerReplacesAFormerNode(t *testing.T) {
	lease := leaseOf(t, here, start)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c-1"}
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "old"}, other}
	controlplane.SetOwner(lease, "n", "")
	if lease.OwnerReferences[0].UID != "old" {
		t.Errorf("SetOwner() without a uid gave %v, want no change", lease.OwnerReferences)
	}
	controlplane.SetOwner(lease, "n", "new")
	if refs := lease.OwnerReferences; len(refs) != 2 || refs[0].UID != "new" || refs[1] != other {
		t.Errorf("SetOwner() gave %v, want the new node and the other owner", refs)
	}
}
