//go:build integration

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/bench/fleet"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// BenchmarkServerOnKubernetes measures kube-controller-manager with only its node lifecycle, taint
// eviction and service account controllers, and then `hostler server` instead of it. Both have the
// same kube-apiserver, with 1,000 Nodes of 50 images that renew 100 Leases a second.
func BenchmarkServerOnKubernetes(b *testing.B) {
	const hosts = 1000
	binary := filepath.Join(b.TempDir(), "hostler")
	check(b, lab.Build(b.Context(), "hostler.io/hostler", version, binary))
	cluster := kube.For(b, kube.Options{
		ControllerManager:      true,
		ControllerManagerFlags: []string{"--controllers=node-lifecycle-controller,taint-eviction-controller,serviceaccount-controller,serviceaccount-token-controller", "--profiling=false"},
		EtcdFlags:              []string{quota},
	})
	check(b, cluster.ApplyFiles(b.Context(), "../../../packaging/kubernetes/server-rbac*.yaml"))
	agents := fleet.Start(b.Context(), fleet.Options{
		Agents: hosts, Pace: fleet.Pace{Duration: 40 * time.Second, Interval: 10 * time.Second}, Report: 5 * time.Minute, Spread: time.Minute,
		Template: host(b),
		Connect: func(name string) (fleet.Client, error) {
			kubeconfig, err := cluster.NodeKubeconfig(name)
			if err != nil {
				return nil, err
			}
			return kubernetes.New(kubernetes.Options{Kubeconfig: kubeconfig, Version: version, Log: slog.New(slog.DiscardHandler)})
		},
	})
	defer agents.Close()
	joining, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	check(b, agents.Joined(joining))
	s := &standing{b: b, cluster: cluster, agents: agents}
	fmt.Println("server                   RSS MB  CPU s/min  requests/min  Unknown after the last renewal, with a grace of 50 s")
	s.measure("kube-controller-manager", cluster.ControllerManager.PID(), 1, func(r kube.Request) bool { return strings.HasPrefix(r.UserAgent, "kube-controller-manager/") })
	check(b, cluster.ControllerManager.Kill())
	file, err := cluster.Kubeconfig(kube.User{Name: "hostler-server"})
	check(b, err)
	r := startReplicaOf(b, binary, fmt.Sprintf("store: {type: kubernetes, kubernetes: {kubeconfig: %s}}\ncontrollers: [node-lifecycle, eviction]", file))
	r.await("it leads and knows all Nodes", func(a answer.Status) bool {
		return a.Controllers[0].State == answer.Leading && a.Nodes == hosts && a.Controllers[0].Waits == ""
	})
	s.measure("hostler server", r.cmd.Process.Pid, 2, func(r kube.Request) bool { return r.User == "hostler-server" })
	if n := agents.Failed(); n > 0 {
		b.Errorf("%d calls of agents failed: %s", n, agents.Failures())
	}
}

// standing is a fleet in a cluster.
type standing struct {
	b       *testing.B
	cluster *kube.Cluster
	agents  *fleet.Fleet
}

// measure prints the cost of a process that acts on the fleet in a minute, and when it marks a host
// that dies.
func (s *standing) measure(name string, pid, dies int, own func(kube.Request) bool) {
	s.b.Helper()
	time.Sleep(20 * time.Second) // garbage of the start is collected by then
	begin, cpu := time.Now(), s.stat(pid).CPUTime()
	time.Sleep(time.Minute)
	stat, end := s.stat(pid), time.Now()
	requests := 0
	all, err := s.cluster.Requests()
	check(s.b, err)
	for _, r := range all {
		if own(r) && r.Time.After(begin) && r.Time.Before(end) {
			requests++
		}
	}
	s.agents.Lose(dies)
	for deadline := time.Now().Add(5 * time.Minute); s.unknown(fleet.Name(dies)).IsZero(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.b.Fatalf("%s: host %s is not Unknown after 5 minutes", name, fleet.Name(dies))
		}
	}
	var lease coordinationv1.Lease
	s.read(&lease, "get", "lease", "-n", corev1.NamespaceNodeLease, fleet.Name(dies))
	fmt.Printf("%-23s  %6.1f  %9.2f  %12d  %.1f s, at most one second less\n", name, float64(stat.ResidentMemory())/1e6, stat.CPUTime()-cpu, requests,
		s.unknown(fleet.Name(dies)).Add(time.Second).Sub(lease.Spec.RenewTime.Time).Seconds())
}

func (s *standing) stat(pid int) procfs.ProcStat {
	s.b.Helper()
	p, err := procfs.NewProc(pid)
	check(s.b, err)
	stat, err := p.Stat()
	check(s.b, err)
	return stat
}

// unknown returns when Ready of a Node became Unknown, in whole seconds; zero if it is not Unknown.
func (s *standing) unknown(name string) time.Time {
	s.b.Helper()
	var node corev1.Node
	s.read(&node, "get", "node", name)
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// read reads an object with kubectl.
func (s *standing) read(o any, args ...string) {
	s.b.Helper()
	out, err := s.cluster.Kubectl(s.b.Context(), append(args, "-o", "json")...)
	check(s.b, err)
	check(s.b, json.Unmarshal([]byte(out), o))
}
