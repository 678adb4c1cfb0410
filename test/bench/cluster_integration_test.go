//go:build integration

package bench_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// window is only changed to test the benchmark: a status without changes is written every five
// minutes.
var window = flag.Duration("window", 5*time.Minute, "how long requests to the API server are counted")

// prepareCluster builds the programs of a cluster if its benchmark was selected.
func prepareCluster(log *slog.Logger) error {
	if !selected("BenchmarkCluster") {
		return nil
	}
	return kube.Prepare(context.Background(), log, kube.Etcd, kube.APIServer, kube.Kubectl, kube.ControllerManager, kube.Kubelet)
}

const clusterStarts = 5

// BenchmarkCluster measures the load of hostler and of a kubelet on a cluster's control plane. Each
// is a node of the same cluster, with its own containerd. It prints the table even if it fails.
func BenchmarkCluster(b *testing.B) {
	var t table
	defer t.print(os.Stdout)
	before := load(b)
	f := newFleet(b)
	defer func() { fmt.Println("\non " + machine(b, f.ours) + ", before " + before) }()
	f.measureStarts(&t)
	f.measureCosts(&t)
}

// fleet is a cluster with the runtimes of two hosts, on one machine.
type fleet struct {
	b            *testing.B
	cluster      *kube.Cluster
	ours, theirs *lab.Containerd // of hostler and of kubelet
}

func newFleet(b *testing.B) *fleet {
	b.Helper()
	f := &fleet{b: b, cluster: kube.For(b, kube.Options{ControllerManager: true}), ours: lab.ContainerdFor(b, lab.ContainerdOptions{})}
	f.theirs = lab.ContainerdFor(b, lab.ContainerdOptions{Registry: f.ours.Registry})
	_, err := lab.In(b).StartLogin(b.Context(), lab.LoginOptions{}) // ends with the lab
	check(b, err)
	return f
}

// startHostler starts a hostler without state, or with that of an earlier one. The kubelet on its
// machine belongs to another node, so hostler ignores it.
func (f *fleet) startHostler(fresh bool, node, kubeconfig string) *agent {
	f.b.Helper()
	return startAgentWith(f.b, fresh, fmt.Sprintf(`runtimes: [{type: cri, endpoint: %s}]
controlPlane: {type: kubernetes, kubernetes: {kubeconfig: %s}}
node: {name: %s, enabled: true}
lease: {enabled: true}
shutdown: {enabled: true}
imageGC: {enabled: true}
containerGC: {enabled: true}
`, f.ours.Endpoint, kubeconfig, node))
}

func (f *fleet) kubeconfig(node string) string {
	f.b.Helper()
	file, err := f.cluster.NodeKubeconfig(node)
	check(f.b, err)
	return file
}

func (f *fleet) kubectl(args ...string) {
	f.b.Helper()
	_, err := f.cluster.Kubectl(f.b.Context(), args...)
	check(f.b, err)
}

// starts measures the starts of hostler or of kubelet.
type starts struct {
	name string
	// prepare prepares a new node. It returns a function that starts the node, which returns a
	// function that stops it.
	prepare func(node string) (start func(fresh bool) (stop func()))
}

// measureStarts measures two times from the start of each: until a watcher of the API server sees
// the first Lease, and until it sees a Node that is Ready with a later heartbeat. It measures on a
// new node, and after a restart.
func (f *fleet) measureStarts(into *table) {
	both := []starts{
		{"hostler", func(node string) func(bool) func() {
			kubeconfig := f.kubeconfig(node)
			return func(fresh bool) func() {
				a := f.startHostler(fresh, node, kubeconfig)
				return func() { a.end(syscall.SIGTERM) }
			}
		}},
		{"kubelet", func(node string) func(bool) func() {
			k := newKubelet(f.b, f.cluster, f.theirs, node)
			return func(bool) func() {
				k.start(f.b)
				return func() { k.stop(f.b) }
			}
		}},
	}
	figures := map[string]*figure{}
	var order []string
	for _, s := range both {
		for _, what := range []string{"first lease, new node", "Ready, new node", "first lease, restart", "Ready, restart"} {
			name := "start to " + what + ": " + s.name
			figures[name] = &figure{name: name, unit: "ms"}
			if s.name == "hostler" {
				figures[name].target = 1000
			}
			order = append(order, name)
		}
	}
	for run := range clusterStarts {
		for _, s := range both {
			node := fmt.Sprintf("%s-%d", s.name, run)
			start := s.prepare(node)
			for _, kind := range []string{"new node", "restart"} {
				leased, isReady := f.timeStart(node, func() func() { return start(kind == "new node") })
				for what, took := range map[string]time.Duration{"first lease": leased, "Ready": isReady} {
					f := figures["start to "+what+", "+kind+": "+s.name]
					f.samples = append(f.samples, milliseconds(took))
				}
			}
			f.kubectl("delete", "node", node)
		}
	}
	slices.Sort(order) // in columns
	for _, name := range order {
		into.add(*figures[name])
	}
}

// timeStart starts a node and stops it again.
func (f *fleet) timeStart(node string, start func() (stop func())) (leased, isReady time.Duration) {
	f.b.Helper()
	// Heartbeats have whole seconds: the previous one must not be in the second of this start.
	time.Sleep(time.Second)
	ctx, cancel := context.WithCancel(f.b.Context())
	defer cancel()
	second := time.Now().Truncate(time.Second)
	leases := follow(ctx, f, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", node, func(*coordinationv1.Lease) bool { return true })
	nodes := follow(ctx, f, "/api/v1/nodes", node, func(n *corev1.Node) bool {
		heartbeat := ready(n)
		return heartbeat.Status == corev1.ConditionTrue && !heartbeat.LastHeartbeatTime.Time.Before(second)
	})
	began := time.Now()
	stop := start()
	defer stop()
	return f.await(leases, "the first lease of "+node).Sub(began), f.await(nodes, node+" is Ready").Sub(began)
}

func (f *fleet) await(when <-chan time.Time, what string) time.Time {
	f.b.Helper()
	select {
	case t := <-when:
		return t
	case <-time.After(patience):
		f.b.Fatal("waited in vain: " + what)
		return time.Time{}
	}
}

// follow watches an object from now on, and sends when wanted first returned true.
func follow[T any](ctx context.Context, f *fleet, path, name string, wanted func(*T) bool) <-chan time.Time {
	f.b.Helper()
	path += "?fieldSelector=metadata.name%3D" + name
	list, err := f.cluster.Open(ctx, path)
	check(f.b, err)
	var now struct {
		Metadata struct{ ResourceVersion string }
	}
	check(f.b, json.NewDecoder(list).Decode(&now))
	check(f.b, list.Close())
	changes, err := f.cluster.Open(ctx, path+"&watch=true&resourceVersion="+now.Metadata.ResourceVersion)
	check(f.b, err)
	when := make(chan time.Time, 1)
	go func() {
		defer changes.Close()
		for d := json.NewDecoder(changes); ; {
			var change struct{ Object *T }
			if d.Decode(&change) != nil {
				return // ended, or already received
			}
			if wanted(change.Object) {
				when <- time.Now()
				return
			}
		}
	}()
	return when
}
