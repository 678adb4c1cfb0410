package lifecycle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/store"
)

// leaves returns what a server leaves to the next one: what the one before it has left, if it does not know better.
func (s *server) leaves(before *left) *left {
	silence, err := s.Silence(time.Now())
	if err != nil {
		return before
	}
	return &left{silence, time.Now()}
}

// after starts a server after another one, which it ends after d. The first one is nil.
func (f fakes) after(before *server, d time.Duration, then func()) *server {
	f.t.Helper()
	if before != nil {
		f.left = before.leaves(f.left)
		before.stop()
	}
	then()
	pass(d)
	return f.serve(fmt.Sprint("s", time.Now().UnixNano()), lifecycle.DefaultPolicy())
}

// unknownAfter returns after what time a host is Unknown.
func (f fakes) unknownAfter(host string, since time.Time) time.Duration {
	f.t.Helper()
	for time.Since(since) < 10*time.Minute {
		for _, c := range f.node(host).Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
				return time.Since(since)
			}
		}
		pass(time.Second)
	}
	f.t.Fatalf("%s is %q after ten minutes", host, f.state(host))
	return 0
}

// TestSilenceCountsAcrossAStart has a host that dies 20 seconds before its server ends, and another server that starts.
func TestSilenceCountsAcrossAStart(t *testing.T) {
	const died, grace, late = 20 * time.Second, leaseDuration, 20 * time.Second // late is until another server leads, and decides
	for name, c := range map[string]struct {
		gap  time.Duration // a second by default
		then func(f fakes) // when the first one has ended
		want time.Duration // after the death; late by up to the time above
	}{
		"a second later": {want: grace},
		"too late":       {gap: 10 * time.Second, want: died + 10*time.Second + grace},
		"it renewed":     {then: func(f fakes) { f.renew("h") }, want: died + grace},
		"it reported": {want: died + grace, then: func(f fakes) {
			f.report("h", "a", func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() })
		}},
		"its Lease ended": {want: grace, then: func(f fakes) { f.store.Remove(store.Leases, "h") }},
		"its Node was registered again": {want: died + grace, then: func(f fakes) {
			f.store.Remove(store.Nodes, "h")
			f.report("h", "a", func(n *corev1.Node) { n.UID = "another" })
		}},
		"somebody wrote its Node": {want: grace, then: func(f fakes) {
			node := f.node("h").DeepCopy()
			node.Labels["a"] = "b"
			f.store.Put(store.Nodes, node)
		}},
	} {
		for _, endsLeases := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, endsLeases=%t", name, endsLeases), func(t *testing.T) {
				inBubble(t, endsLeases, func(t *testing.T, f fakes) {
					f.agent("alive", "a")
					kill := f.agent("h", "a")
					first := f.after(nil, 0, func() {})
					pass(time.Minute)
					kill()
					since := time.Now()
					pass(died)
					gap := max(c.gap, time.Second)
					f.after(first, gap, func() {
						if c.then != nil {
							c.then(f)
						}
					})
					// The host renewed at most 10 seconds before it died.
					if got := f.unknownAfter("h", since); got < c.want-10*time.Second || got > c.want+late {
						t.Errorf("Unknown %v after the death, want between %v and %v", got, c.want-10*time.Second, c.want+late)
					}
					f.want("alive", stateReady)
				})
			})
		}
	}
}

// TestStartsPostponeNoDeath has a server that starts again every 15 seconds, and one that starts again every 5 seconds.
func TestStartsPostponeNoDeath(t *testing.T) {
	for _, every := range []time.Duration{5 * time.Second, 15 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			inBubble(t, true, func(t *testing.T, f fakes) {
				f.agent("alive", "a")
				kill := f.agent("h", "a")
				s := f.after(nil, 0, func() {})
				pass(time.Minute)
				kill()
				for range 4 * time.Minute / every {
					s = f.after(s, time.Second, func() {})
					pass(every)
				}
				s.stop()
				f.want("h", stateGone)
				f.want("alive", stateReady)
			})
		})
	}
}

// TestASilenceIsBounded has more hosts than a Silence may have. One of them has been silent for longer and has no Lease,
// and one has written a long text.
func TestASilenceIsBounded(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.report("without", "a", func(*corev1.Node) {})
		f.report("hostile", "a", func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(strings.Repeat("u", 400<<10))}}
		})
		s := f.after(nil, 10*time.Second, func() {})
		pass(10 * time.Second)
		for i := range 1001 {
			f.renew(fmt.Sprint("h", i))
			f.report(fmt.Sprint("h", i), "a", func(*corev1.Node) {})
		}
		pass(16 * time.Second)
		silence, err := s.Silence(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(silence.Hosts); n != 1000 || silence.Hosts[1].Name != "without" {
			t.Errorf("Silence() has %d hosts, of which the second one is %s, want 1000 and without", n, silence.Hosts[1].Name)
		}
		if slices.ContainsFunc(silence.Hosts, func(h lifecycle.SilentHost) bool { return h.Ready != "" && h.Ready != corev1.ConditionTrue }) {
			t.Error("Silence() has the long text that a host has written")
		}
	})
}
