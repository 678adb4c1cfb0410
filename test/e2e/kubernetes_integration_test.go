//go:build integration

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// cluster is a control plane of a fleet.
type cluster struct {
	*kube.Cluster
	t *testing.T
}

func newCluster(t *testing.T, o kube.Options) cluster { return cluster{kube.For(t, o), t} }

// kubectl runs kubectl as the administrator.
func (c cluster) kubectl(args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	out, err := c.Kubectl(ctx, args...)
	check(c.t, err)
	return out
}

// read reads an object or a list as the administrator. What a test waits for is read so: each kubectl costs as much as a hundred
// of these reads.
func (c cluster) read(path string, into any) {
	c.t.Helper()
	answer, err := c.Open(within(c.t), path)
	check(c.t, err)
	defer answer.Close()
	check(c.t, json.NewDecoder(answer).Decode(into))
}

// node returns the stored Node; nil if there is none.
func (c cluster) node(name string) *corev1.Node {
	c.t.Helper()
	var list corev1.NodeList
	c.read("/api/v1/nodes", &list)
	for _, n := range list.Items {
		if n.Name == name {
			return &n
		}
	}
	return nil
}

// storedPod returns a pod of namespace default; nil if there is none.
func (c cluster) storedPod(name string) *corev1.Pod {
	c.t.Helper()
	var list corev1.PodList
	c.read("/api/v1/namespaces/default/pods", &list)
	for _, p := range list.Items {
		if p.Name == name {
			return &p
		}
	}
	return nil
}

// asNode returns the configuration of an agent with the credentials of that node.
func (c cluster) asNode(name, more string) string {
	c.t.Helper()
	file, err := c.NodeKubeconfig(name)
	check(c.t, err)
	return fmt.Sprintf("controlPlane: {type: kubernetes, kubernetes: {kubeconfig: %s}}\nnode: {name: %s%s}\n", file, name, more)
}

// TestANodeOfACluster follows a host's life as the cluster sees it.
func TestANodeOfACluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{ControllerManager: true, ControllerManagerFlags: []string{"--node-monitor-period=500ms", "--node-monitor-grace-period=20s"}})
	const lease = "lease: {duration: 10s, renewInterval: 1s}\nstatus: {updateInterval: 1s}\n"
	a := startAgent(t, c.asNode("rack1-node1", ", labels: {example.com/rack: r1}, taints: [{key: example.com/new, effect: NoSchedule}]")+lease)
	ready := func(want corev1.ConditionStatus) func() bool {
		return func() bool {
			node := c.node("rack1-node1")
			return node != nil && condition(api.Status{Node: node}, corev1.NodeReady).Status == want
		}
	}
	eventually(t, "the cluster sees the node Ready", ready(corev1.ConditionTrue))
	eventuallyMentions(t, "kubectl get node -o wide", func() string { return c.kubectl("get", "node", "rack1-node1", "-o", "wide") }, "rack1-node1", " Ready", "containerd://")
	eventuallyMentions(t, "kubectl describe node", func() string { return c.kubectl("describe", "node", "rack1-node1") },
		"example.com/rack=r1", "example.com/new:NoSchedule", "HolderIdentity:  rack1-node1", "RenewTime", "InternalIP", "Registered")
	// The first Lease may be older than the Node; a later one names its owner.
	eventually(t, "the node owns its lease", func() bool {
		return c.kubectl("get", "lease", "rack1-node1", "-n", "kube-node-lease", "-o", "jsonpath={.metadata.ownerReferences[*].name}") == "rack1-node1"
	})

	t.Run("a cordon by a person on the host, and one by a person elsewhere", func(t *testing.T) {
		a.prints("cordon")
		eventuallyMentions(t, "kubectl get node", func() string { return c.kubectl("get", "node", "rack1-node1") }, " Ready,SchedulingDisabled")
		c.kubectl("uncordon", "rack1-node1")
		eventually(t, "hostler knows of the uncordon", func() bool { return !a.status().Node.Spec.Unschedulable })
		c.kubectl("cordon", "rack1-node1")
		eventually(t, "hostler shows the cordon", func() bool { return strings.Contains(a.screen(), "SchedulingDisabled") })
		c.kubectl("uncordon", "rack1-node1")
	})
	t.Run("what somebody else changes", func(t *testing.T) {
		c.kubectl("label", "node", "rack1-node1", "example.com/rack=r2", "--overwrite")
		eventually(t, "the label is set again", func() bool { return c.node("rack1-node1").Labels["example.com/rack"] == "r1" })
		c.kubectl("taint", "node", "rack1-node1", "example.com/new-")
		eventually(t, "hostler says what fixes the taint", func() bool {
			return slices.ContainsFunc(a.status().Drift, func(d api.Drift) bool {
				return strings.Contains(d.Fix, "kubectl taint nodes rack1-node1 example.com/new:NoSchedule") || strings.Contains(d.Fix, "kubectl taint nodes rack1-node1 example.com/new=:NoSchedule")
			})
		})
	})
	t.Run("a node that is deleted is registered again", func(t *testing.T) {
		before := c.node("rack1-node1").UID
		c.kubectl("delete", "node", "rack1-node1")
		eventually(t, "there is a new node", func() bool { n := c.node("rack1-node1"); return n != nil && n.UID != before })
		eventually(t, "it is Ready", ready(corev1.ConditionTrue))
	})
	t.Run("an agent that dies, and restarts", func(t *testing.T) {
		a.kill()
		eventually(t, "the cluster takes the node for lost", ready(corev1.ConditionUnknown))
		eventually(t, "the cluster taints it", func() bool {
			return slices.ContainsFunc(c.node("rack1-node1").Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
		})
		a.start()
		eventually(t, "the cluster sees the node Ready again", ready(corev1.ConditionTrue))
	})
	t.Run("an agent that is blocked and has nothing to report", func(t *testing.T) {
		check(t, a.process.Signal(syscall.SIGSTOP))
		eventually(t, "the cluster takes the node for lost", ready(corev1.ConditionUnknown))
		check(t, a.process.Signal(syscall.SIGCONT))
		eventually(t, "the cluster sees the node Ready again", ready(corev1.ConditionTrue))
	})
	t.Run("a node may not delete itself", func(t *testing.T) {
		if r := a.hostler("leave"); r.code != 1 || !strings.Contains(r.err, "kubectl delete node rack1-node1") {
			t.Errorf("hostler leave = code %d, %s%s, want it refused, and the command for somebody who may", r.code, r.out, r.err)
		}
	})
	a.stop()
}

// TestANodeThatSomebodyElseCreates waits for its Node.
func TestANodeThatSomebodyElseCreates(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	a := startAgent(t, c.asNode("given", ", register: false")+"status: {updateInterval: 1s}\n")
	eventually(t, "hostler says that it waits", func() bool { return strings.Contains(a.screen(), "no Node given exists yet") })
	if out, err := c.Kubectl(t.Context(), "get", "lease", "given", "-n", "kube-node-lease"); err == nil {
		t.Errorf("there is a lease before there is a node:\n%s", out)
	}
	check(t, c.Apply(t.Context(), "{apiVersion: v1, kind: Node, metadata: {name: given}}"))
	eventually(t, "the node is Ready", func() bool {
		return condition(api.Status{Node: c.node("given")}, corev1.NodeReady).Status == corev1.ConditionTrue
	})
	eventually(t, "there is a lease", func() bool {
		_, err := c.Kubectl(t.Context(), "get", "lease", "given", "-n", "kube-node-lease")
		return err == nil
	})
	a.stop()
}

// TestANodeThatJoinsByBootstrap has only a token at first, and no address: that appears long after
// it has joined.
func TestANodeThatJoinsByBootstrap(t *testing.T) {
	t.Parallel()
	const address = "192.0.2.77"
	c := newCluster(t, kube.Options{ControllerManager: true})
	bootstrap, err := c.BootstrapKubeconfig(t.Context())
	check(t, err)
	a := startAgent(t, fmt.Sprintf("controlPlane: {type: kubernetes, kubernetes: {bootstrapKubeconfig: %s, certificateDirectory: %s}}\nnode: {name: joins, address: {internal: [%s]}}\n", bootstrap, t.TempDir(), address))
	eventually(t, "the node is Ready, without an address", func() bool {
		n := c.node("joins")
		return n != nil && condition(api.Status{Node: n}, corev1.NodeReady).Status == corev1.ConditionTrue &&
			condition(api.Status{Node: n}, corev1.NodeNetworkUnavailable).Reason == status.ReasonAddressMissing && internal(n) == nil
	})

	// No other address is used, because the interface belongs to a container.
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "docker-late"}, PeerName: "docker-far"}
	check(t, netlink.LinkAdd(link))
	t.Cleanup(func() { check(t, netlink.LinkDel(link)) })
	far, err := netlink.LinkByName(link.PeerName)
	check(t, err)
	check(t, errors.Join(netlink.LinkSetUp(link), netlink.LinkSetUp(far)))
	check(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(address))}))
	eventually(t, "the node has its address", func() bool {
		n := c.node("joins")
		return slices.Equal(internal(n), []string{address}) && condition(api.Status{Node: n}, corev1.NodeNetworkUnavailable).Status == corev1.ConditionFalse
	})
	a.stop()
}

// sighting is a Node at one moment.
type sighting struct {
	at   time.Time // when it was seen
	node *corev1.Node
}

// ready returns status and reason of Ready: "True HostReady".
func (s sighting) ready() string {
	c := condition(api.Status{Node: s.node}, corev1.NodeReady)
	return string(c.Status) + " " + c.Reason
}

// nodeNow returns the present Node.
func (c cluster) nodeNow(name string) sighting {
	c.t.Helper()
	answer, err := c.Open(within(c.t), "/api/v1/nodes/"+name)
	check(c.t, err)
	defer answer.Close()
	s := sighting{at: time.Now(), node: &corev1.Node{}}
	check(c.t, json.NewDecoder(answer).Decode(s.node))
	return s
}

// witness records all states of a Node.
type witness struct {
	t    *testing.T
	mu   sync.Mutex
	seen []sighting // guarded by mu
}

// watch follows an existing Node until the test ends.
func (c cluster) watch(name string) *witness {
	c.t.Helper()
	w := &witness{t: c.t}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := c.KubectlCommand(ctx, "get", "node", name, "--watch", "-o", "json")
	out, err := cmd.StdoutPipe()
	check(c.t, err)
	check(c.t, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for objects := json.NewDecoder(out); ; {
			node := &corev1.Node{}
			if objects.Decode(node) != nil {
				return
			}
			w.mu.Lock()
			w.seen = append(w.seen, sighting{time.Now(), node})
			w.mu.Unlock()
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
		_ = cmd.Wait() // it was killed
	})
	eventually(c.t, "the node is watched", func() bool { return len(w.sightings()) > 0 })
	return w
}

func (w *witness) sightings() []sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// await waits for a sighting after the first ones.
func (w *witness) await(what string, first int, is func(sighting) bool) sighting {
	w.t.Helper()
	var found sighting
	eventually(w.t, what, func() bool {
		seen := w.sightings()[first:]
		i := slices.IndexFunc(seen, is)
		if i >= 0 {
			found = seen[i]
		}
		return i >= 0
	})
	return found
}

// readies returns the consecutive states of Ready.
func readies(seen []sighting) []string {
	var all []string
	for _, s := range seen {
		if !strings.HasSuffix(s.ready(), " "+status.ReasonRuntimeDown) { // on a busy machine, a runtime may be late
			all = append(all, s.ready())
		}
	}
	return slices.Compact(all)
}

// TestTheClusterSeesAShutdownBeforeTheHostIsGone also checks the return of the host.
func TestTheClusterSeesAShutdownBeforeTheHostIsGone(t *testing.T) {
	login := logind(t)
	c := newCluster(t, kube.Options{})
	const name = "comes-and-goes"
	a := startAgent(t, c.asNode(name, "")+phases)
	eventually(t, "the cluster knows the node", func() bool { return c.node(name) != nil })
	w := c.watch(name)
	isReady := func(s sighting) bool { return s.ready() == "True "+status.ReasonHostReady }
	var returns []time.Duration
	for i := range 5 {
		// The drain takes until the cluster has seen it: hostler waits only seconds for that.
		web := pod(t, fmt.Sprintf("web-%d", i), nil, 10*time.Minute, endsOnUSR1())
		a.awaitGuard(shutdown.Armed)
		w.await("the cluster sees the node Ready", len(w.sightings())-1, isReady)

		before, began := len(w.sightings()), time.Now()
		check(t, login.Reboot(t.Context()))
		drains := w.await("the cluster sees that the node drains", before, func(s sighting) bool { return s.ready() == "False "+status.ReasonDraining })
		mentions(t, "message of Ready", condition(api.Status{Node: drains.node}, corev1.NodeReady).Message, "node is shutting down")
		endAsked(t, web)
		_, err := login.Manager.AwaitStart(within(t), "reboot.target", began)
		check(t, err)
		if now := c.nodeNow(name); now.ready() != "False "+status.ReasonDraining {
			t.Errorf("when the host went down the cluster had %q, want the node not ready, and why", now.ready())
		}
		a.awaitGuard(shutdown.Released)
		a.stop()

		gone := len(w.sightings())
		boot(t, login)
		back := time.Now()
		a.start()
		s := w.await("the cluster sees the node Ready again", gone, isReady)
		returns = append(returns, s.at.Sub(back))
		if got, want := readies(w.sightings()[before-1:]), []string{"True " + status.ReasonHostReady, "False " + status.ReasonDraining, "True " + status.ReasonHostReady}; !slices.Equal(got, want) {
			t.Errorf("the cluster saw %q, want %q", got, want)
		}
	}
	slices.Sort(returns)
	t.Logf("from the start of the agent until the cluster sees the node Ready: %v, median %v", returns, returns[len(returns)/2])
	a.stop()
	for _, reason := range []string{"Shutdown", "ShutdownReleased", "LastShutdownGraceful", "Rebooted"} {
		mentions(t, "kubectl get events", c.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}"), reason)
	}
}

// TestTheClusterSeesThatAShutdownWasCancelled checks it for several shutdowns.
func TestTheClusterSeesThatAShutdownWasCancelled(t *testing.T) {
	login := logind(t)
	pod(t, "greedy", nil, 10*time.Minute, lab.IgnoreTerm())
	c := newCluster(t, kube.Options{})
	const name, cancellations = "stays", 3
	const up, down = "True " + status.ReasonHostReady, "False " + status.ReasonDraining
	a := startAgent(t, c.asNode(name, "")+phases)
	eventually(t, "the cluster knows the node", func() bool { return c.node(name) != nil })
	w := c.watch(name)
	says := func(ready string) func(sighting) bool { return func(s sighting) bool { return s.ready() == ready } }
	w.await("the cluster sees the node Ready", 0, says(up))
	first := slices.IndexFunc(w.sightings(), says(up))
	want := []string{up}
	for range cancellations {
		a.awaitGuard(shutdown.Armed)
		before := len(w.sightings())
		check(t, login.Reboot(t.Context()))
		w.await("the cluster sees that the node drains", before, says(down))
		before = len(w.sightings())
		check(t, login.RestartLogind(t.Context()))
		w.await("the cluster sees the node Ready again", before, says(up))
		want = append(want, down, up)
	}
	reported := func(reason string) (times int) {
		for count := range strings.FieldsSeq(c.kubectl("get", "events", "-o", `jsonpath={range .items[?(@.reason=="`+reason+`")]}{.count} {end}`)) {
			n, err := strconv.Atoi(count)
			check(t, err)
			times += n
		}
		return times
	}
	eventually(t, "the cluster has the Event of the last cancellation", func() bool { return reported("ShutdownCancelled") >= cancellations })
	a.stop() // by then everything is reported
	if got := readies(w.sightings()[first:]); !slices.Equal(got, want) {
		t.Errorf("the cluster saw %q, want %q", got, want)
	}
	for _, reason := range []string{"Shutdown", "ShutdownCancelled"} {
		if n := reported(reason); n != cancellations {
			t.Errorf("the cluster received %d Events %s, want %d", n, reason, cancellations)
		}
	}
}
