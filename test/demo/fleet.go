package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
)

const (
	// lost is the host that is killed.
	lost = "web-2"
	// leaseTime is the duration of a Lease.
	leaseTime = 5 * time.Second
	// tolerated is how long the pod on the lost host tolerates the taint.
	tolerated = 5 * time.Minute
)

// fleet is the second demo: three hosts in etcd, and the server.
type fleet struct {
	lab    *lab.Lab
	out    *console
	binary string

	etcd       *etcd.Cluster
	containerd *lab.Containerd
	hosts      map[string]*lab.Daemon
	server     *lab.Daemon
}

// execute implements scenario.
func (f *fleet) execute(ctx context.Context, out *console) error {
	f.out = out
	return out.runChapters(ctx, []chapter{
		{"Three hosts in etcd", f.prepare},
		{"A server leads", f.startServer},
		{"A host dies", f.loseHost},
		{"The host returns", f.returnHost},
	})
}

// close implements scenario.
func (f *fleet) close(ctx context.Context) error {
	var errs []error
	for _, d := range f.hosts {
		errs = append(errs, d.Kill())
	}
	if f.server != nil {
		errs = append(errs, f.server.Stop(ctx))
	}
	if f.containerd != nil {
		errs = append(errs, f.containerd.Close(ctx))
	}
	if f.etcd != nil {
		errs = append(errs, f.etcd.Close())
	}
	return errors.Join(errs...)
}

// log implements scenario.
func (f *fleet) log() string {
	if f.server == nil {
		return ""
	}
	return f.server.Log(25)
}

func file(name string) string { return filepath.Join(folder, name) }

// socket returns the API socket of a host's agent.
func socket(host string) string { return file(host + ".sock") }

var serverSocket = file("server.sock")

// prepare starts etcd and the agents.
func (f *fleet) prepare(ctx context.Context) (err error) {
	f.out.printf(`This is a private corner of the machine, which ends with this program. In it
		run a real etcd, a containerd and three agents, each with a machine ID and a
		host name of its own. Leases last %s, so that you need not wait for long.`, leaseTime)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if f.etcd, err = etcd.Start(ctx, etcd.Options{}); err != nil {
		return err
	}
	if f.containerd, err = f.lab.StartContainerd(ctx, lab.ContainerdOptions{}); err != nil {
		return err
	}
	f.hosts = map[string]*lab.Daemon{}
	for i, host := range []struct{ name, zone string }{{"db-1", "north"}, {"web-1", "north"}, {lost, "south"}} {
		if err := f.startHost(host.name, host.zone, i+1); err != nil {
			return err
		}
	}
	if err := f.run(ctx, "cat", file(lost+".yaml")); err != nil {
		return err
	}
	nodes, err := f.await(ctx, "three hosts are Ready", func(nodes []corev1.Node) bool {
		return len(nodes) == 3 && !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return condition(&n, corev1.NodeReady).Status != corev1.ConditionTrue })
	})
	if err != nil {
		return err
	}
	if err := f.show(ctx, "nodes", "--socket", socket("db-1")); err != nil {
		return err
	}
	f.out.checks()
	f.out.check(len(nodes) == 3, "three hosts are Ready", "there are %d", len(nodes))
	return f.putPod(ctx)
}

// startHost starts an agent with its own host name and machine ID.
func (f *fleet) startHost(name, zone string, number int) error {
	config := fmt.Sprintf(`controlPlane: {type: etcd, etcd: {endpoints: [%s]}}
node: {labels: {topology.kubernetes.io/zone: %s}}
runtimes: [{type: cri, endpoint: %s}]
lease: {duration: %s, renewInterval: 1s}
status: {updateInterval: 1s}
shutdown: {enabled: false}
imageGC: {enabled: false}
containerGC: {enabled: false}
metrics: {listen: ""}
api: {socket: %s}
state: {directory: %s}
`, strings.Join(f.etcd.Endpoints(), ", "), zone, f.containerd.Endpoint, leaseTime, socket(name), file(name+".state"))
	if err := errors.Join(
		os.WriteFile(file(name+".yaml"), []byte(config), 0o600),
		os.WriteFile(file(name+".id"), fmt.Appendf(nil, "%032x\n", number), 0o444),
	); err != nil {
		return err
	}
	f.hosts[name] = lab.NewDaemon(name, lab.Tool{Path: "/usr/bin/unshare"}, folder, nil, "--mount", "--uts", "sh", "-c",
		`hostname "$1" && mount --bind "$2" /etc/machine-id && exec "$3" agent --config "$4"`,
		"sh", name, file(name+".id"), f.binary, file(name+".yaml"))
	return f.hosts[name].Start()
}

// putPod stores a pod, as agents that report their pods do.
func (f *fleet) putPod(ctx context.Context) error {
	pod := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shop", "namespace": "default", "uid": "1"},
 "spec": {"nodeName": %q, "containers": [{"name": "shop", "image": "shop:1"}],
  "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": %.0f}]},
 "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`, lost, tolerated.Seconds())
	f.out.printf(`%s also has a pod, stored as an agent with status.pods: true stores it. It
		tolerates for %s that its host is gone.`, lost, tolerated)
	return f.etcd.Put(ctx, "/hostler/objects/pods/"+lost+"/default/shop", pod)
}

// startServer starts the server.
func (f *fleet) startServer(ctx context.Context) error {
	config := fmt.Sprintf("store: {type: etcd, etcd: {endpoints: [%s]}}\napi: {socket: %s}\n", strings.Join(f.etcd.Endpoints(), ", "), serverSocket)
	if err := os.WriteFile(file("server.yaml"), []byte(config), 0o600); err != nil {
		return err
	}
	if err := errors.Join(f.run(ctx, "cat", file("server.yaml")), f.show(ctx, "config", "check", "--server", "--config", file("server.yaml"))); err != nil {
		return err
	}
	f.out.command("hostler server --config "+file("server.yaml")+" &", "")
	f.server = lab.NewDaemon("server", lab.Tool{Path: f.binary}, folder, nil, "server", "--config", file("server.yaml"))
	if err := f.server.Start(); err != nil {
		return err
	}
	s, err := f.awaitServer(ctx, "the server leads, and knows the hosts", func(s answer.Status) bool {
		return s.Nodes == 3 && settledAt(s, 0)
	})
	if err != nil {
		return err
	}
	if err := f.showFleet(ctx, "status", "plan"); err != nil {
		return err
	}
	f.out.checks()
	f.out.check(s.NotReady == 0 && len(s.Problems) == 0, "all hosts are ready, and nothing is due", "%d are not ready: %v", s.NotReady, s.Problems)
	return nil
}

// loseHost kills an agent, as a power failure does.
func (f *fleet) loseHost(ctx context.Context) error {
	f.out.printf("The agent of %s gets SIGKILL, as in a power cut. Its Lease ends within %s.", lost, leaseTime)
	if err := f.hosts[lost].Kill(); err != nil {
		return err
	}
	killed := time.Now()
	nodes, err := f.await(ctx, lost+" is Unknown and tainted", func(nodes []corev1.Node) bool {
		n := nodeOf(nodes, lost)
		return condition(n, corev1.NodeReady).Status == corev1.ConditionUnknown && len(n.Spec.Taints) == 2
	})
	if err != nil {
		return err
	}
	took := time.Since(killed)
	if _, err := f.awaitServer(ctx, "the eviction is planned", func(s answer.Status) bool {
		return s.NotReady == 1 && settledAt(s, 1)
	}); err != nil {
		return err
	}
	if err := errors.Join(f.show(ctx, "nodes", "--socket", socket("db-1")), f.showFleet(ctx, "status", "plan")); err != nil {
		return err
	}
	var plan answer.Plan
	if err := f.read(ctx, &plan, "fleet", "plan", "--socket", serverSocket); err != nil {
		return err
	}
	f.out.checks()
	f.out.check(true, fmt.Sprintf("%s is Unknown and has the taints unreachable, %s after it was killed", lost, took.Round(100*time.Millisecond)), "")
	due, object := "nothing", ""
	for _, c := range plan.Controllers {
		for _, a := range c.Actions {
			due, object = a.Action, a.Object
		}
	}
	f.out.check(object == "pods/"+lost+"/default/shop", "its pod is evicted once it does not tolerate that any more", "the plan is to %s %s", due, object)
	well := condition(nodeOf(nodes, "web-1"), corev1.NodeReady).Status == corev1.ConditionTrue && len(nodeOf(nodes, "web-1").Spec.Taints) == 0
	f.out.check(well, "the other hosts are as they were", "web-1 is %v", nodeOf(nodes, "web-1").Spec.Taints)
	return nil
}

// returnHost starts the agent again.
func (f *fleet) returnHost(ctx context.Context) error {
	f.out.printf("The host is started again.")
	if err := f.hosts[lost].Start(); err != nil {
		return err
	}
	if _, err := f.await(ctx, lost+" is Ready without taints", func(nodes []corev1.Node) bool {
		n := nodeOf(nodes, lost)
		return condition(n, corev1.NodeReady).Status == corev1.ConditionTrue && len(n.Spec.Taints) == 0
	}); err != nil {
		return err
	}
	s, err := f.awaitServer(ctx, "nothing is planned", func(s answer.Status) bool {
		return s.NotReady == 0 && settledAt(s, 0)
	})
	if err != nil {
		return err
	}
	if err := errors.Join(f.show(ctx, "nodes", "--socket", socket("db-1")), f.showFleet(ctx, "status", "plan")); err != nil {
		return err
	}
	pod, err := f.etcd.Ctl(ctx, "get", "--print-value-only", "/hostler/objects/pods/"+lost+"/default/shop")
	if err != nil {
		return err
	}
	f.out.checks()
	f.out.check(s.NotReady == 0, lost+" is Ready, and its taints are gone", "%d hosts are not ready", s.NotReady)
	f.out.check(strings.Contains(pod, `"shop"`) && !strings.Contains(pod, "deletionTimestamp"), "its pod was not evicted", "it is %s", pod)
	return nil
}

// showFleet runs commands of `hostler fleet` and shows them.
func (f *fleet) showFleet(ctx context.Context, commands ...string) error {
	var errs []error
	for _, c := range commands {
		errs = append(errs, f.show(ctx, "fleet", c, "--socket", serverSocket))
	}
	return errors.Join(errs...)
}

func (f *fleet) show(ctx context.Context, args ...string) error {
	return f.out.shown(ctx, f.binary, append([]string{"hostler"}, args...)...)
}

func (f *fleet) run(ctx context.Context, line ...string) error {
	return f.out.shown(ctx, f.binary, line...)
}

func (f *fleet) read(ctx context.Context, into any, args ...string) error {
	return readJSON(ctx, f.binary, into, args...)
}

// nodeOf returns the Node of that name, or an empty one.
func nodeOf(nodes []corev1.Node, name string) *corev1.Node {
	for i := range nodes {
		if nodes[i].Name == name {
			return &nodes[i]
		}
	}
	return &corev1.Node{}
}

// await reads the stored Nodes until reached returns true.
func (f *fleet) await(ctx context.Context, awaited string, reached func([]corev1.Node) bool) ([]corev1.Node, error) {
	return awaitUntil(ctx, awaited, func(ctx context.Context) (nodes []corev1.Node, err error) {
		text, err := f.etcd.Ctl(ctx, "get", "--prefix", "--print-value-only", "/hostler/nodes/")
		if err != nil {
			return nil, err
		}
		for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
			var node corev1.Node
			if err := decoder.Decode(&node); err != nil {
				return nil, err
			}
			nodes = append(nodes, node)
		}
		return nodes, nil
	}, reached)
}

// awaitServer reads the state of the server until reached returns true.
func (f *fleet) awaitServer(ctx context.Context, awaited string, reached func(answer.Status) bool) (answer.Status, error) {
	return awaitUntil(ctx, awaited, func(ctx context.Context) (s answer.Status, err error) {
		return s, f.read(ctx, &s, "fleet", "status", "--socket", serverSocket)
	}, reached)
}

// settledAt reports whether the server leads all controllers, has nothing to do now, and has that
// many actions for later.
func settledAt(s answer.Status, pending int) bool {
	for _, c := range s.Controllers {
		waits := slices.Contains([]string{answer.Starting, answer.Standby, answer.Yielding}, c.State)
		if waits || c.Waits != "" || c.Due > 0 {
			return false
		}
		pending -= c.Pending
	}
	return pending == 0 && !slices.ContainsFunc(s.Loops, func(l loop.Health) bool { return !l.Healthy })
}

// awaitUntil repeats read until reached returns true.
func awaitUntil[T any](ctx context.Context, awaited string, read func(context.Context) (T, error), reached func(T) bool) (T, error) {
	const limit = 30 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not happen within %s", limit))
	defer cancel()
	for {
		seen, err := read(ctx)
		if err == nil && reached(seen) {
			return seen, nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return seen, fmt.Errorf("expected: %s; seen: %+v; %w", awaited, seen, errors.Join(context.Cause(ctx), err))
		}
	}
}
