//go:build integration

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// bootsOfTheLab replaces the boot ID of the whole lab until the test ends. It returns the file with that ID, and what
// begins another boot.
func bootsOfTheLab(t *testing.T) (file string, next func()) {
	t.Helper()
	boots := 0
	file = filepath.Join(t.TempDir(), "boot_id")
	next = func() {
		t.Helper()
		boots++
		check(t, os.WriteFile(file, fmt.Appendf(nil, "00000000-0000-4000-8000-%012d\n", boots), 0o644))
	}
	next()
	check(t, unix.Mount(file, bootIDFile, "", unix.MS_BIND, ""))
	t.Cleanup(func() { check(t, unix.Unmount(bootIDFile, unix.MNT_DETACH)) })
	return file, next
}

// realPod is a pod that a kubelet can run.
func realPod(node, name string) *corev1.Pod {
	pod := newPod(node, name, -1)
	grace, no := int64(5), false
	pod.Spec.HostNetwork, pod.Spec.AutomountServiceAccountToken, pod.Spec.TerminationGracePeriodSeconds = true, &no, &grace
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: webImage, ImagePullPolicy: corev1.PullNever, Command: lab.ServeFor(0)}}
	pod.Status = corev1.PodStatus{}
	return pod
}

// hasEnded reports whether a pod has ended, or is gone.
func (c cluster) hasEnded(pod string) bool {
	c.t.Helper()
	p := c.storedPod(pod)
	return p == nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// TestAKubeletsHostRebootsInTurn has a real kubelet with an agent beside it, and two servers. The server that leads
// empties the Node against a PodDisruptionBudget, and is killed in the middle.
func TestAKubeletsHostRebootsInTurn(t *testing.T) {
	const name = "both"
	logind(t) // a host whose shutdown does not wait for the pods that are left does not reboot in turn
	bootID, boot := bootsOfTheLab(t)
	c := newCluster(t, kube.Options{ControllerManager: true, ControllerManagerFlags: []string{"--controllers=disruption,serviceaccount,serviceaccount-token"}})
	runtime := lab.ContainerdFor(t, lab.ContainerdOptions{})
	_, err := runtime.Pull(within(t), lab.ImageSpec{Names: []string{webImage}})
	check(t, err)
	manifests := t.TempDir()
	static, err := json.Marshal(realPod("", "static"))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(manifests, "static.json"), static, 0o644))
	k := kube.KubeletFor(t, c.Cluster, kube.KubeletOptions{
		Node: name, Endpoint: runtime.Endpoint, CgroupRoot: kube.PodsCgroup(t),
		Config: "nodeStatusUpdateFrequency: 1s\nnodeLeaseDurationSeconds: 4\nresolvConf: \"\"\nstaticPodPath: " + manifests,
	})
	check(t, k.Start())
	eventually(t, "the kubelet's Node is Ready", c.ready(name))

	requested := filepath.Join(lab.Dir, "reboot-was-requested")
	a := newAgent(t, c.asNode(name, "")+"runtimes: [{type: cri, endpoint: "+runtime.Endpoint+"}]\nstatus: {updateInterval: 1s}\n"+
		"reboot: {enabled: true, group: workers, readyFor: 1s, sentinels: [], command: touch "+requested+"}\n")
	a.dropIn = []string{"BindReadOnlyPaths=" + bootID + ":" + bootIDFile} // ProtectKernelTunables= uncovers the kernel's
	h := &rebooter{agent: a, name: name, requested: requested}
	a.start()
	if s := a.status(); !owned(s, owner.Kubelet, "node") {
		t.Fatalf("owners = %+v, want the Node to be the kubelet's", s.Owners)
	}
	// reboots has the host go down and come back.
	reboots := func() {
		t.Helper()
		h.goesDown()
		a.kill()
		check(t, k.Stop(within(t)))
		boot()
		check(t, os.Remove(requested))
		check(t, k.Start())
		a.start()
		h.is(controlplane.RebootDone)
		slotBecomes(t, c, name, "nothing any more", none)
	}

	newNodes(t, c, nil, "n2")
	newNodes(t, c, map[string]string{controlplane.LabelRebootGroup: "workers"}, "w1", "w2")
	run := func(pod *corev1.Pod) {
		t.Helper()
		c.createPod(pod)
		if pod.Spec.NodeName == name {
			eventually(t, pod.Name+" runs", func() bool { return c.pod(pod.Name) == podWell })
		}
	}
	web := func(node, pod string) *corev1.Pod {
		p := newPod(node, pod, -1)
		if node == name {
			p = realPod(node, pod)
		}
		p.Labels = map[string]string{"app": "web"}
		return p
	}
	run(web(name, "web-0"))
	run(web(name, "web-1"))
	daemon, yes := realPod(name, "daemon"), true
	daemon.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: &yes}}
	run(daemon)
	const mirror = "static-" + name
	eventually(t, "the static pod runs", func() bool { return c.pod(mirror) == podWell })
	check(t, c.Apply(within(t), budget))
	eventually(t, "the budget knows its pods", func() bool {
		return c.kubectl("get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy} {.status.expectedPods}") == "2 2"
	})
	first, second := startServer(t, c.served(rebootSettings)), startServer(t, c.served(rebootSettings))
	leads, other := leader(t, first, second)

	t.Run("it requests no slot of another group", func(t *testing.T) {
		a.prints("reboot", "--reason", "new kernel")
		command := "label --overwrite node " + name + " " + controlplane.LabelRebootGroup + "=workers"
		h.is(controlplane.RebootWanted, "the Node is in group default, and `reboot.group` is workers: run `kubectl "+command+"`")
		reboot(t, c, "n2", "r1", controlplane.RebootWaiting)
		slotBecomes(t, c, "n2", "it has the slot of its group", granted("r1"))
		c.kubectl(strings.Fields(command)...)
		h.is(controlplane.RebootDraining)
	})
	t.Run("the server empties its Node", func(t *testing.T) {
		const blocked = "pods left on the Node: 2, of them cannot be evicted now: 2: default/web-0 (The disruption budget web needs 2 healthy pods and has 2 currently)"
		slotBecomes(t, c, name, "the budget blocks", func(s controlplane.RebootSlot) bool { return s.Cordoned && s.Why == "blocked" })
		h.is(controlplane.RebootDraining, blocked)
		mentions(t, "hostler status", a.screen(), "disruption budget web")
		eventuallyMentions(t, "hostler fleet slots", func() string { return onOneLine(other.prints("slots")) }, name+" workers", "Draining", blocked)
		leads.end(syscall.SIGKILL)
		// The agent starts while the kubelet does not run. The pods are not the agent's to stop.
		check(t, k.Kill())
		a.kill()
		a.start()
		check(t, k.Start())
		run(web("n2", "web-2"))
		eventually(t, "one pod has ended", func() bool { return c.hasEnded("web-0") != c.hasEnded("web-1") })
		slotBecomes(t, c, name, "the other one is blocked", func(s controlplane.RebootSlot) bool {
			return s.Why == "blocked" && strings.Contains(s.Message, "Node: 1, ")
		})
		if _, err := os.Stat(requested); err == nil {
			t.Fatal("the host reboots while a budget keeps a pod there")
		}
		leads.start()
		run(web("n2", "web-3"))
		h.goesDown()
		if s := slotOf(t, c, name); !s.Emptied || !c.node(name).Spec.Unschedulable {
			t.Errorf("slot = %+v, want the Node to be empty and cordoned", s)
		}
		for pod, want := range map[string]bool{"web-0": true, "web-1": true, "daemon": false, mirror: false, "web-2": false} {
			if c.hasEnded(pod) != want {
				t.Errorf("pod %s has ended before the reboot: %t, want %t", pod, !want, want)
			}
		}
		reboots()
		if c.node(name).Spec.Unschedulable {
			t.Error("the Node is still cordoned")
		}
		other.free(t, "workers")
		eventually(t, "agent and server have reported the reboot", func() bool { // each in an order of its own
			reported := strings.Fields(c.kubectl("get", "events", "--field-selector", "involvedObject.name="+name, "-o", "jsonpath={.items[*].reason}"))
			return !slices.ContainsFunc([]string{"RebootRequested", "RebootSlotGranted", "RebootStarted", "RebootNodeEmptied", "RebootFinished"}, func(reason string) bool {
				return !slices.Contains(reported, reason)
			})
		})
		if past := a.status().Reboot.Past; len(past) != 1 || past[0].ByOther {
			t.Errorf("past = %+v, want one reboot", past)
		}
	})
	t.Run("a person is in a hurry", func(t *testing.T) {
		for _, holder := range []string{"w1", "w2"} {
			reboot(t, c, holder, "r1", controlplane.RebootWaiting)
			slotBecomes(t, c, holder, "it has a slot", granted("r1"))
			reboot(t, c, holder, "r1", controlplane.RebootGranted)
		}
		run(realPod(name, "late"))
		c.kubectl("cordon", name) // by a person
		a.prints("reboot", "--now", "--reason", "disk fails")
		h.goesDown()
		if !c.hasEnded("late") {
			t.Error("pod late runs at the reboot")
		}
		if g := other.group("workers"); len(g.Holders) != 2 || g.Holders[0].ID == name || g.Holders[1].ID == name {
			t.Errorf("holders = %+v, want the two that had slots before", g.Holders)
		}
		reboots()
		if !c.node(name).Spec.Unschedulable {
			t.Error("a person's cordon was undone")
		}
	})
	a.stop()
	requests, err := c.Requests()
	check(t, err)
	for _, r := range requests {
		if r.Code == 403 && (r.User == serverUser || strings.HasPrefix(r.UserAgent, "hostler/")) {
			t.Errorf("refused: %v", r)
		}
	}
}
