//go:build integration

package e2e_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	etcdclient "hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/objects"
	fleetanswer "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/kube"
)

// annotate sets an annotation of a Node as its host does.
func (f etcdFleet) annotate(name, key, value string) {
	f.t.Helper()
	client := f.host()
	_, err := client.Annotate(within(f.t), name, f.node(name).UID, key, value)
	check(f.t, err)
	check(f.t, client.Close())
}

// asHost returns a client as hosts have it.
func (f etcdFleet) asHost() controlplane.Client { return f.host() }

// host is asHost.
func (f etcdFleet) host() *objects.Client {
	f.t.Helper()
	s, err := etcdclient.New(etcdclient.Options{Endpoints: f.Endpoints(), Prefix: "/hostler"})
	check(f.t, err)
	return objects.New(s, objects.Options{})
}

func (c cluster) asHost() controlplane.Client {
	c.t.Helper()
	client, err := kubernetes.New(kubernetes.Options{Kubeconfig: c.AdminKubeconfig(), Log: slog.New(slog.DiscardHandler)})
	check(c.t, err)
	return client
}

func (c cluster) annotate(name, key, value string) {
	c.t.Helper()
	c.kubectl("annotate", "--overwrite", "node", name, key+"="+value)
}

// rebooters is a fleet whose hosts this test simulates.
type rebooters interface {
	engine
	annotate(name, key, value string)
	asHost() controlplane.Client
}

// reboot sets the step of a host's request.
func reboot(t testing.TB, f rebooters, name, id string, step controlplane.RebootStep) {
	t.Helper()
	_, kubernetes := f.(cluster)
	now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	text, err := json.Marshal(controlplane.RebootRequest{ID: id, Step: step, Since: now, Wanted: now, Reason: "kernel", EmptiedByServer: kubernetes})
	check(t, err)
	f.annotate(name, controlplane.AnnotationReboot, string(text))
}

// slotOf returns the servers' answer to a host; the zero value if there is none.
func slotOf(t testing.TB, f rebooters, name string) controlplane.RebootSlot {
	t.Helper()
	slot, err := controlplane.RebootSlotOf(f.node(name).Annotations)
	check(t, err)
	if slot == nil {
		return controlplane.RebootSlot{}
	}
	return *slot
}

// slotBecomes waits until is returns true for the servers' answer to a host.
func slotBecomes(t testing.TB, f rebooters, name, what string, is func(controlplane.RebootSlot) bool) {
	t.Helper()
	last := controlplane.RebootSlot{}
	defer func() {
		if t.Failed() {
			t.Logf("slot of %s was last %+v", name, last)
		}
	}()
	eventually(t, fmt.Sprintf("%s: %s", name, what), func() bool { last = slotOf(t, f, name); return is(last) })
}

func granted(id string) func(controlplane.RebootSlot) bool {
	return func(s controlplane.RebootSlot) bool { return s.ID == id && s.Granted != nil }
}

func none(s controlplane.RebootSlot) bool { return s == controlplane.RebootSlot{} }

// group returns a group of `hostler fleet slots`.
func (s *server) group(name string) fleetanswer.SlotGroup {
	s.t.Helper()
	var a fleetanswer.Slots
	check(s.t, json.Unmarshal([]byte(s.prints("slots", "-o", "json")), &a))
	return a.Groups[slices.IndexFunc(a.Groups, func(g fleetanswer.SlotGroup) bool { return g.Name == name })]
}

// leader returns which of two servers leads, and the other.
func leader(t testing.TB, a, b *server) (leads, other *server) {
	t.Helper()
	state := func(s *server) string {
		for _, c := range s.status().Controllers {
			if c.Name == "reboots" {
				return c.State
			}
		}
		return ""
	}
	eventually(t, "one of two servers leads", func() bool {
		if leads, other = a, b; state(a) == fleetanswer.Leading {
			return true
		}
		leads, other = b, a
		return state(b) == fleetanswer.Leading
	})
	return leads, other
}

// newNodes stores Nodes that are Ready, and renews their Leases until the test ends.
func newNodes(t *testing.T, f rebooters, labels map[string]string, names ...string) {
	storeNodes(f, labels, names...)
	renewLeases(t, f, names...)
}

// storeNodes stores Nodes that are Ready.
func storeNodes(f rebooters, labels map[string]string, names ...string) {
	for _, name := range names {
		node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: readyIs(corev1.ConditionTrue)}
		if _, is := f.(etcdFleet); is { // there, hosts set the UIDs of their Nodes
			node.UID = types.UID("uid-" + name)
		}
		f.create(node)
	}
}

// renewLeases renews Leases until the test ends.
func renewLeases(t *testing.T, f rebooters, names ...string) {
	client := f.asHost()
	var leases []*coordinationv1.Lease
	for _, name := range names {
		lease, err := controlplane.NewLease(name, controlplane.Identity{MachineID: "m"}, time.Hour)
		check(t, err)
		leases = append(leases, lease)
	}
	renew := func() {
		for i, lease := range leases {
			if stored, err := client.RenewLease(t.Context(), controlplane.Renew(lease, time.Now())); err == nil { // the next one repeats it
				leases[i] = stored
			}
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for t.Context().Err() == nil {
			renew()
			time.Sleep(time.Second)
		}
	}()
	t.Cleanup(func() {
		<-ended
		check(t, client.Close())
	})
}

const rebootSettings = "reboots: {groups: {default: {slots: 1, maxUnavailable: 100%}, workers: {slots: 2}}}\ncontrollers: [reboots]\n"

// TestHostsRebootInTurn has three hosts that want to reboot at once, and two servers. The leading
// one is killed at each step.
func TestHostsRebootInTurn(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) rebooters{
		"etcd":       func(t *testing.T) rebooters { return newFleet(t, etcd.Options{}) },
		"Kubernetes": func(t *testing.T) rebooters { return newCluster(t, kube.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			names := []string{"n1", "n2", "n3"}
			newNodes(t, f, nil, names...)
			first, second := startServer(t, f.served(rebootSettings)), startServer(t, f.served(rebootSettings))
			for i, name := range names {
				reboot(t, f, name, "r-"+name, controlplane.RebootWaiting)
				if i == 0 {
					slotBecomes(t, f, name, "it has the slot", granted("r-n1"))
				}
			}
			for i, name := range names {
				slotBecomes(t, f, name, "it has the slot", granted("r-"+name))
				for _, waits := range names[i+1:] {
					slotBecomes(t, f, waits, "it waits", func(s controlplane.RebootSlot) bool {
						return s.ID == "r-"+waits && s.Granted == nil && s.Why == "turn"
					})
				}
				for _, step := range []controlplane.RebootStep{controlplane.RebootGranted, controlplane.RebootDraining, controlplane.RebootRebooting, controlplane.RebootVerifying} {
					reboot(t, f, name, "r-"+name, step)
					if _, is := f.(cluster); is && step == controlplane.RebootDraining {
						slotBecomes(t, f, name, "its Node is empty", func(s controlplane.RebootSlot) bool { return s.Emptied && s.Cordoned })
					}
					if i == 0 {
						killed, other := leader(t, first, second)
						killed.end(syscall.SIGKILL)
						leader(t, other, other)
						killed.start()
					}
					eventually(t, fmt.Sprintf("%s at %s is the only holder", name, step), func() bool { // a server that has just started reads the Nodes first
						g := first.group("default")
						return len(g.Holders) == 1 && g.Holders[0].ID == name && g.Holders[0].Step == string(step)
					})
				}
				reboot(t, f, name, "r-"+name, controlplane.RebootDone)
				slotBecomes(t, f, name, "nothing any more", none)
				if f.node(name).Spec.Unschedulable {
					t.Errorf("%s is still cordoned", name)
				}
			}
			eventually(t, "the group is free", func() bool {
				g := first.group("default")
				return len(g.Holders)+len(g.Waiting) == 0 && len(g.Releases) == 3 && g.Releases[0].ID == "n3" && g.Releases[0].How == "GivenBack"
			})
			// A slot that a person releases does not belong to the host any more. A request right after it
			// is a new one.
			reboot(t, f, "n1", "r1", controlplane.RebootWaiting)
			slotBecomes(t, f, "n1", "it has the slot", granted("r1"))
			reboot(t, f, "n1", "r1", controlplane.RebootGranted)
			_, other := leader(t, first, second)
			other.prints("slots", "release", "n1", "--reason", "it is off")
			slotBecomes(t, f, "n1", "it has lost the slot", func(s controlplane.RebootSlot) bool { return s.Granted == nil && s.Why == "lost" })
			reboot(t, f, "n1", "r2", controlplane.RebootWaiting)
			slotBecomes(t, f, "n1", "it has another slot", granted("r2"))
			reboot(t, f, "n1", "r3", controlplane.RebootWanted)
			slotBecomes(t, f, "n1", "nothing any more", none)
			eventuallyMentions(t, "hostler fleet slots", func() string { return onOneLine(other.prints("slots")) }, "n1 default", "the host does not want the slot yet")
			reboot(t, f, "n2", "r1", controlplane.RebootWaiting)
			slotBecomes(t, f, "n2", "it passes the one that is paused", granted("r1"))
			f.annotate("n3", controlplane.AnnotationReboot, "{")
			eventuallyMentions(t, "hostler fleet status", func() string { return onOneLine(other.prints("status")) }, "nodes/n3", "the request to reboot cannot be read")
		})
	}
}

// budget is a PodDisruptionBudget that requires two ready pods of an application.
const budget = `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"web","namespace":"default"},"spec":{"minAvailable":2,"selector":{"matchLabels":{"app":"web"}}}}`

// TestANodeIsEmptiedBeforeItsReboot has a budget that blocks and then allows, pods that stay, a
// slow pod, two groups, and a leader that is killed meanwhile.
func TestANodeIsEmptiedBeforeItsReboot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{ControllerManager: true, ControllerManagerFlags: []string{"--controllers=disruption,serviceaccount,serviceaccount-token"}})
	newNodes(t, c, nil, "n1", "n2")
	newNodes(t, c, map[string]string{controlplane.LabelRebootGroup: "workers"}, "w1")
	create := func(node, name string, change func(*corev1.Pod)) {
		t.Helper()
		pod := newPod(node, name, -1)
		change(pod)
		c.createPod(pod)
	}
	web := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }
	create("n1", "web-0", web)
	create("n1", "web-1", web)
	create("n1", "batch", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded; p.Status.Conditions = nil })
	create("n1", "daemon", func(p *corev1.Pod) {
		controller := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: &controller}}
	})
	create("n1", "static", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
	create("w1", "worker", func(*corev1.Pod) {})
	check(t, c.Apply(within(t), budget))
	eventually(t, "the budget knows its pods", func() bool {
		return c.kubectl("get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy} {.status.expectedPods}") == "2 2"
	})
	c.kubectl("cordon", "w1")
	a, b := startServer(t, c.served(rebootSettings)), startServer(t, c.served(rebootSettings))
	leads, other := leader(t, a, b)
	for _, name := range []string{"n1", "w1", "n2"} {
		reboot(t, c, name, "r1", controlplane.RebootWaiting)
		if name != "n2" {
			slotBecomes(t, c, name, "it has the slot of its group", granted("r1"))
			reboot(t, c, name, "r1", controlplane.RebootGranted)
			reboot(t, c, name, "r1", controlplane.RebootDraining)
		}
	}
	slotBecomes(t, c, "n2", "it waits", func(s controlplane.RebootSlot) bool { return strings.Contains(s.Message, "n1 since") })

	const blocked = "pods left on the Node: 2, of them cannot be evicted now: 2: default/web-0 (The disruption budget web needs 2 healthy pods and has 2 currently)"
	slotBecomes(t, c, "n1", "the budget blocks", func(s controlplane.RebootSlot) bool {
		return s.Cordoned && !s.Emptied && s.Why == "blocked" && strings.HasPrefix(s.Message, blocked)
	})
	if !c.node("n1").Spec.Unschedulable {
		t.Error("n1 is not cordoned")
	}
	for _, s := range []*server{leads, other} {
		eventuallyMentions(t, "hostler fleet slots", func() string { return onOneLine(s.prints("slots")) }, "n1 default", "Draining", blocked)
	}
	eventuallyMentions(t, "hostler fleet plan", func() string { return onOneLine(leads.prints("plan")) }, "pods/default/web-0", "evict the pod", "disruption budget web")
	mentions(t, "log", leads.logged(), `msg="pod cannot be evicted now, retrying"`, "pod=default/web-0")
	// The worker's pod ends meanwhile. Only its kubelet removes it.
	c.podBecomes("worker", podMoved)
	if s := slotOf(t, c, "w1"); s.Emptied || s.Cordoned {
		t.Errorf("slot of w1 = %+v, want that its pod is waited for, and its cordon is a person's", s)
	}
	leads.end(syscall.SIGKILL)
	c.ends("worker")
	slotBecomes(t, c, "w1", "it is empty", func(s controlplane.RebootSlot) bool { return s.Emptied && !s.Cordoned })

	create("n2", "web-2", web)
	var gone string
	eventually(t, "one pod may leave", func() bool {
		for _, name := range []string{"web-0", "web-1"} {
			if c.pod(name) == podMoved {
				gone = name
			}
		}
		return gone != ""
	})
	c.ends(gone)
	stays := map[string]string{"web-0": "web-1", "web-1": "web-0"}[gone]
	slotBecomes(t, c, "n1", "the other one is blocked", func(s controlplane.RebootSlot) bool {
		return s.Why == "blocked" && strings.Contains(s.Message, "Node: 1, ") && strings.Contains(s.Message, "default/"+stays+" (")
	})
	create("n2", "web-3", web)
	c.podBecomes(stays, podMoved)
	c.ends(stays)
	slotBecomes(t, c, "n1", "it is empty", func(s controlplane.RebootSlot) bool { return s.Emptied && s.Cordoned })
	for _, name := range []string{"daemon", "static", "batch", "web-2"} {
		if state := c.pod(name); state == podGone || state == podMoved {
			t.Errorf("pod %s is %s, want that it stays", name, state)
		}
	}
	leads.start()
	for _, step := range []controlplane.RebootStep{controlplane.RebootRebooting, controlplane.RebootVerifying, controlplane.RebootDone} {
		if !c.node("n1").Spec.Unschedulable {
			t.Errorf("n1 is schedulable before %s", step)
		}
		reboot(t, c, "n1", "r1", step)
		reboot(t, c, "w1", "r1", step)
	}
	slotBecomes(t, c, "n1", "nothing any more", none)
	slotBecomes(t, c, "w1", "nothing any more", none)
	if c.node("n1").Spec.Unschedulable || !c.node("w1").Spec.Unschedulable {
		t.Errorf("n1 cordoned: %t, w1 cordoned: %t, want only a person's cordon left", c.node("n1").Spec.Unschedulable, c.node("w1").Spec.Unschedulable)
	}
	// A request that is withdrawn half-way.
	slotBecomes(t, c, "n2", "it has the slot", granted("r1"))
	reboot(t, c, "n2", "r1", controlplane.RebootDraining)
	slotBecomes(t, c, "n2", "the budget blocks", func(s controlplane.RebootSlot) bool { return s.Cordoned && s.Why == "blocked" })
	reboot(t, c, "n2", "r1", controlplane.RebootDone)
	slotBecomes(t, c, "n2", "nothing any more", none)
	if c.node("n2").Spec.Unschedulable {
		t.Error("n2 is still cordoned")
	}
	eventually(t, "the slot is free", func() bool { return len(other.group("default").Holders) == 0 })
	c.awaitEvents("n1", "RebootSlotGranted", "RebootNodeEmptied")
	c.unrefused(serverUser)
}

// ends removes a pod whose deletion was requested, as its kubelet does.
func (c cluster) ends(pod string) {
	c.t.Helper()
	c.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
}
