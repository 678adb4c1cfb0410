//go:build integration

package machine_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/machine"
)

// clusterConfig is the configuration of a machine that is a node of a cluster.
const clusterConfig = `controlPlane: {type: kubernetes, kubernetes: {kubeconfig: /etc/hostler/kubeconfig}}
node: {name: machine}
`

// clockConfig renews the Lease often, so that a cluster that misses renewals soon reports the node
// as lost.
const clockConfig = clusterConfig + "lease: {duration: 12s, renewInterval: 3s}\n"

// A cluster reports a node as lost that renews no Lease for that long; and enough renewals to last
// longer.
const (
	clockGrace    = 15 * time.Second
	clockRenewals = 7
)

// TestTheClockIsStepped sets a machine's clock forward and back by an hour, as a person does who
// corrects it. A cluster with a correct clock sees the node Ready throughout, and no renewTime that
// decreases.
func TestTheClockIsStepped(t *testing.T) {
	inVMs(t, func(t *testing.T, o machine.Options) {
		cluster := kube.For(t, kube.Options{
			Apart: true, ControllerManager: true,
			ControllerManagerFlags: []string{"--node-monitor-period=500ms", fmt.Sprintf("--node-monitor-grace-period=%v", clockGrace)},
		})
		o.Uplink, o.Config, o.Files = true, clockConfig, credentials(t, cluster)
		s := &stepped{T: t, cluster: cluster, m: machine.Boot(t, o)}
		s.m.Eventually("the cluster sees the node Ready", func() bool {
			out, err := kubectl(t, cluster, "get", "node", "machine", "-o", readyPath)
			return err == nil && out == string(corev1.ConditionTrue)+"\n"
		})
		ready := recording(t, cluster, "get", "node", "machine", "--watch", "-o", readyPath)
		renewals := recording(t, cluster, "get", "lease", "machine", "-n", corev1.NamespaceNodeLease, "--watch", "-o", `jsonpath={.spec.renewTime}{"\n"}`)

		s.step("+1 hour")
		s.step("-1 hour") // the clock is correct again
		s.step("-1 hour")
		s.m.Run("systemctl restart hostler")
		s.m.AwaitArmed()
		s.lives("after a restart an hour behind")
		s.step("+1 hour")

		if states := slices.Compact(ready()); !slices.Equal(states, []string{string(corev1.ConditionTrue)}) {
			t.Errorf("the cluster saw Ready = %v, want it True throughout; the longest time without a renewal was %v of %v", states, s.longestGap(), clockGrace)
		}
		times := renewals()
		for i := range times[1:] {
			if times[i] > times[i+1] { // RFC 3339 in UTC can be sorted
				t.Errorf("the lease was renewed at %s after %s, want no time to go back", times[i+1], times[i])
			}
		}
		t.Logf("seen: %d renewals from %s to %s, at most %v apart by the cluster's clock", len(times), times[0], times[len(times)-1], s.longestGap().Round(10*time.Millisecond))
	})
}

const readyPath = `jsonpath={.status.conditions[?(@.type=="Ready")].status}{"\n"}`

// credentials returns the files of the machine's node.
func credentials(t *testing.T, c *kube.Cluster) map[string]string {
	t.Helper()
	file, err := c.NodeKubeconfig("machine")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"etc/hostler/ca.crt":     string(ca),
		"etc/hostler/kubeconfig": strings.ReplaceAll(string(kubeconfig), c.CAFile, "/etc/hostler/ca.crt"),
	}
}

// stepped is a machine whose clock is set, and the cluster that observes it.
type stepped struct {
	*testing.T
	cluster *kube.Cluster
	m       *machine.Machine
}

// step sets the clock, and checks that the machine works.
func (s *stepped) step(by string) {
	s.Helper()
	before := s.m.Run("date +%s")
	s.m.Run(fmt.Sprintf("date --set %q", by))
	s.Logf("clock set by %s, at %s", by, strings.TrimSpace(before))
	s.lives("after a step of " + by)
}

// lives waits until the Lease was renewed for longer than the cluster waits, and until the cluster
// has got a new status.
func (s *stepped) lives(when string) {
	s.Helper()
	before := len(s.renewed())
	s.m.Eventually("the lease is renewed "+when, func() bool { return len(s.renewed()) >= before+clockRenewals })
	s.m.Hostler("status") // fails while the Lease is overdue
	for _, want := range []struct{ command, unschedulable string }{{"cordon", "true"}, {"uncordon", ""}} {
		s.m.Hostler(want.command)
		s.m.Eventually("the cluster has an Event about a "+want.command+" "+when, func() bool {
			out, err := kubectl(s.T, s.cluster, "get", "node", "machine", "-o", "jsonpath={.spec.unschedulable}")
			return err == nil && out == want.unschedulable
		})
	}
}

// renewed returns the times of the Lease renewals that the cluster accepted.
func (s *stepped) renewed() []time.Time {
	s.Helper()
	requests, err := s.cluster.Requests()
	if err != nil {
		s.Fatal(err)
	}
	var times []time.Time
	for _, r := range requests {
		if r.Resource == "leases" && r.Verb == "update" && r.Name == "machine" && r.Code < 300 {
			times = append(times, r.Time)
		}
	}
	return times
}

// longestGap returns the longest time without a renewal.
func (s *stepped) longestGap() time.Duration {
	s.Helper()
	var longest time.Duration
	times := s.renewed()
	for i := range times[1:] {
		longest = max(longest, times[i+1].Sub(times[i]))
	}
	return longest
}

// kubectl runs kubectl as the administrator.
func kubectl(t *testing.T, cluster *kube.Cluster, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), machine.Patience)
	defer cancel()
	return cluster.Kubectl(ctx, args...)
}

// recording starts a watch with kubectl. The returned function stops it and returns its lines.
// recording returns when the watch has started.
func recording(t *testing.T, cluster *kube.Cluster, args ...string) func() []string {
	t.Helper()
	watches := func() int {
		requests, err := cluster.Requests()
		if err != nil {
			t.Fatal(err)
		}
		return len(slices.DeleteFunc(requests, func(r kube.Request) bool { return r.Verb != "watch" || !strings.HasPrefix(r.UserAgent, "kubectl/") }))
	}
	before := watches()
	ctx, cancel := context.WithCancel(t.Context())
	lines := make(chan []string, 1)
	go func() {
		out, _ := cluster.Kubectl(ctx, args...) // it is killed
		lines <- strings.Fields(out)
	}()
	for deadline := time.Now().Add(machine.Patience); watches() == before; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			cancel()
			t.Fatalf("kubectl %s: no watch within %v", strings.Join(args, " "), machine.Patience)
		}
	}
	return func() []string {
		t.Helper()
		cancel()
		seen := <-lines
		if len(seen) == 0 {
			t.Fatalf("kubectl %s saw nothing", strings.Join(args, " "))
		}
		return seen
	}
}
