//go:build integration

package e2e_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
)

// podAt returns the key of a pod's object.
func podAt(host, name string) string { return "/hostler/objects/pods/" + host + "/default/" + name }

// pod returns the stored object of a pod; nil if there is none.
func (f etcdFleet) pod(path string) *corev1.Pod {
	f.t.Helper()
	text := f.ctl("get", "--print-value-only", path)
	if strings.TrimSpace(text) == "" {
		return nil
	}
	o := &corev1.Pod{}
	check(f.t, json.Unmarshal([]byte(text), o))
	return o
}

// awaitPod waits until awaited returns true for a pod's object, and returns it.
func (f etcdFleet) awaitPod(what, path string, awaited func(*corev1.Pod) bool) (o *corev1.Pod) {
	f.t.Helper()
	eventually(f.t, what, func() bool {
		o = f.pod(path)
		return o != nil && awaited(o)
	})
	return o
}

// changePod stores a changed object of a pod, as another client does.
func (f etcdFleet) changePod(path string, change func(*corev1.Pod)) {
	f.t.Helper()
	o := f.pod(path)
	change(o)
	text, err := json.Marshal(o)
	check(f.t, err)
	check(f.t, f.Put(f.t.Context(), path, string(text)))
}

// revisionOf returns the revision of the last change of a key.
func (f etcdFleet) revisionOf(key string) string {
	f.t.Helper()
	return regexp.MustCompile(`"mod_revision":\d+`).FindString(f.ctl("get", key, "--write-out=json"))
}

// internalIP returns the first address of a Node, which pods have as their host's.
func internalIP(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

func podCondition(o *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	i := slices.IndexFunc(o.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.PodCondition{}
	}
	return o.Status.Conditions[i]
}

// hasRestarted reports whether the container of a pod runs, and was restarted that often.
func hasRestarted(restarts int32) func(*corev1.Pod) bool {
	return func(o *corev1.Pod) bool {
		s := o.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Running != nil && s[0].Ready && s[0].RestartCount == restarts && podCondition(o, corev1.PodReady).Status == corev1.ConditionTrue
	}
}

// TestAFleetInEtcdSeesThePodsOfAHost has only the rights of the documentation.
func TestAFleetInEtcdSeesThePodsOfAHost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{TLS: true})
	const name, web = "rack1-node1", "objects-web"
	files, err := f.Client(name, 48*time.Hour)
	check(t, err)
	check(t, f.Grant(t.Context(), name, "", "readwrite", "/hostler/nodes/"+name, "/hostler/leases/"+name, "/hostler/events/"+name+"/", "/hostler/objects/pods/"+name+"/"))
	f.ctl("role", "grant-permission", name, "read", "/hostler/settings/lease-duration")
	check(t, f.EnableAuth(t.Context()))
	ghost, alien := podAt(name, "ghost"), podAt("rack1-node2", "theirs")
	f.ctl("put", ghost, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":"ghost","uid":"u"}}`)
	f.ctl("put", "/hostler/objects/pods/"+name+"/nonsense", "[")
	f.ctl("put", alien, "{}")

	settings := fmt.Sprintf("controlPlane: {type: etcd, etcd: {endpoints: [%s], tls: {ca: %s, certificate: %s, key: %s}}}\nnode: {name: %s}\nlease: {renewInterval: 1s}\n",
		strings.Join(f.Endpoints(), ", "), f.CAFile, files.Certificate, files.Key, name)
	a := startAgent(t, settings+"status: {updateInterval: 1s, pods: true}\n")
	well := func(s api.Status) bool { // other tests may run more pods than have objects
		l := loopOf(t, s, "pod-objects")
		return l.Healthy || strings.Contains(l.LastError, "have no object")
	}
	eventually(t, "objects without a pod are removed", func() bool {
		return f.pod(ghost) == nil && !strings.Contains(f.ctl("get", "--prefix", "--keys-only", "/hostler/objects/pods/"+name+"/"), "nonsense")
	})
	if f.pod(alien) == nil {
		t.Error("the object of another host is gone, want it kept")
	}
	eventuallyMentions(t, "hostler doctor", a.doctor, "etcd allows everything that hostler needs")

	labels := map[string]string{"example.com/app": "web"}
	for i := range 30 { // containerd takes 4096 bytes for each
		labels[fmt.Sprintf("example.com/huge-%d", i)] = strings.Repeat("x", 4000)
	}
	p := pod(t, web, labels, 0, lab.ServeFor(0))
	path := podAt(name, web)
	o := f.awaitPod("the pod has an object, with the address of the host", path, func(o *corev1.Pod) bool {
		return hasRestarted(0)(o) && o.Status.HostIP == internalIP(f.node(name))
	})
	node := f.node(name)
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}}
	if o.APIVersion != "v1" || o.Kind != "Pod" || string(o.UID) != p.UID || !slices.Equal(o.OwnerReferences, owner) || o.CreationTimestamp.IsZero() || o.Status.StartTime == nil {
		t.Errorf("object = %+v, want that of the pod, owned by its Node", o)
	}
	if o.Labels["example.com/app"] != "web" || len(o.Labels) > 25 || o.Labels[sanitize.DroppedKey] == "" {
		t.Errorf("labels = app %q, %d in all, want that one, and some of the large ones", o.Labels["example.com/app"], len(o.Labels))
	}
	s := o.Status.ContainerStatuses[0]
	if o.Spec.NodeName != name || len(o.Spec.Containers) != 1 || o.Spec.Containers[0].Image != webImage || len(o.Spec.Tolerations) != 2 ||
		s.ContainerID != "containerd://"+p.Containers["main"] || s.ImageID == "" {
		t.Errorf("object = %+v, want its container and its host", o)
	}
	if !o.Spec.HostNetwork || o.Status.PodIP != o.Status.HostIP {
		t.Errorf("network = %t, %s, want that of the host %s", o.Spec.HostNetwork, o.Status.PodIP, o.Status.HostIP)
	}

	deleted := metav1.NewTime(time.Now().Truncate(time.Second))
	f.changePod(path, func(o *corev1.Pod) {
		o.DeletionTimestamp, o.Annotations = &deleted, map[string]string{"example.com/by": "fleet"}
		o.Status.Conditions = append(o.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager"})
	})
	restart := func(attempt uint32) {
		t.Helper()
		_, err := containerd.Runtime.StopContainer(t.Context(), stopNow(p))
		check(t, err)
		_, err = containerd.RunContainer(t.Context(), p, lab.ContainerSpec{Name: "main", Image: webImage, Command: lab.ServeFor(0), Ready: "ready", Attempt: attempt})
		check(t, err)
	}
	kept := func(what string, restarts int32) {
		t.Helper()
		o := f.awaitPod(what, path, hasRestarted(restarts))
		if !o.DeletionTimestamp.Equal(&deleted) || o.Annotations["example.com/by"] != "fleet" || podCondition(o, corev1.DisruptionTarget).Reason != "DeletionByTaintManager" {
			t.Errorf("object when %s = %+v, want what others wrote kept", what, o)
		}
	}
	// A container that is restarted at once: the pod never stops, as long as another one runs.
	side, err := containerd.RunContainer(t.Context(), p, lab.ContainerSpec{Name: "side", Image: webImage, Command: lab.ServeFor(0), Ready: "ready"})
	check(t, err)
	f.awaitPod("the object has both containers", path, func(o *corev1.Pod) bool { return len(o.Status.ContainerStatuses) == 2 })
	restart(1)
	o = f.awaitPod("a restart is counted", path, func(o *corev1.Pod) bool { return o.Status.ContainerStatuses[0].RestartCount == 1 })
	if !o.DeletionTimestamp.Equal(&deleted) {
		t.Errorf("deletionTimestamp = %v, want it kept", o.DeletionTimestamp)
	}
	_, err = containerd.Runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: side})
	check(t, err)
	_, err = containerd.Runtime.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: side})
	check(t, err)
	kept("the other container is gone", 1)

	before := f.revisionOf(path)
	a.stop()
	a.start()
	a.await("the loop is well after a restart", well)
	kept("the agent was restarted", 1)
	check(t, f.Members[0].Kill())
	eventually(t, "hostler reports that etcd is down", func() bool { return a.status().ControlPlane.LastError != "" })
	second := pod(t, web+"-2", nil, 0, lab.ServeFor(0))
	check(t, f.Run(t.Context()))
	f.awaitPod("a pod that was started meanwhile has an object", podAt(name, web+"-2"), hasRestarted(0))
	kept("etcd is back", 1)
	a.await("the loop is well", well)
	if after := f.revisionOf(path); after != before {
		t.Errorf("revision of the object = %s, then %s, want no write without a change", before, after)
	}

	f.changePod(path, func(o *corev1.Pod) { o.Finalizers = []string{"example.com/wait"} })
	check(t, containerd.StopPod(t.Context(), p))
	o = f.awaitPod("the object says that the pod has stopped", path, func(o *corev1.Pod) bool {
		return o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded
	})
	if !o.DeletionTimestamp.Equal(&deleted) || len(o.Finalizers) != 1 || podCondition(o, corev1.PodReady).Status != corev1.ConditionFalse {
		t.Errorf("object of a pod that has stopped = %+v, want it kept for its finalizer", o)
	}
	f.changePod(path, func(o *corev1.Pod) { o.Finalizers = nil })

	check(t, containerd.StopPod(t.Context(), second))
	eventually(t, "the object of a pod that has stopped is gone", func() bool { return f.pod(podAt(name, web+"-2")) == nil })

	third := pod(t, web+"-3", nil, 0, lab.ServeFor(0))
	at := podAt(name, third.Name)
	f.awaitPod("a third pod has an object", at, hasRestarted(0))
	a.prints("leave")
	if f.pod(at) != nil || f.node(name) != nil {
		t.Error("objects are in etcd after hostler leave, want them gone")
	}
	a.prints("leave", "--undo")
	o = f.awaitPod("it has one again", at, hasRestarted(0))
	if owner := o.OwnerReferences[0].UID; owner != f.node(name).UID || owner == node.UID {
		t.Errorf("owner = %s, want the new Node %s", owner, f.node(name).UID)
	}

	a.stop()
	a.configure(settings)
	a.start()
	eventually(t, "objects are removed that are not to be kept any more", func() bool {
		return strings.TrimSpace(f.ctl("get", "--prefix", "--keys-only", "/hostler/objects/pods/"+name+"/")) == ""
	})
	a.stop()
	a.start()
	if slices.ContainsFunc(a.status().Loops, func(l api.Loop) bool { return l.Name == "pod-objects" }) {
		t.Error("there is a loop pod-objects, want none once all are removed")
	}
	a.stop()
}

// TestAFleetInEtcdNeedsTheRightToSeePods reports the missing right, and works otherwise.
func TestAFleetInEtcdNeedsTheRightToSeePods(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{TLS: true})
	const name = "rack1-node1"
	files, err := f.Client(name, 48*time.Hour)
	check(t, err)
	check(t, f.Grant(t.Context(), name, "", "readwrite", "/hostler/nodes/"+name, "/hostler/leases/"+name, "/hostler/events/"+name+"/"))
	f.ctl("role", "grant-permission", name, "read", "/hostler/settings/lease-duration")
	check(t, f.EnableAuth(t.Context()))
	a := startAgent(t, fmt.Sprintf("controlPlane: {type: etcd, etcd: {endpoints: [%s], tls: {ca: %s, certificate: %s, key: %s}}}\nnode: {name: %s}\nstatus: {pods: true}\n",
		strings.Join(f.Endpoints(), ", "), f.CAFile, files.Certificate, files.Key, name))
	const grant = "etcdctl role grant-permission hostler-rack1-node1 --prefix readwrite /hostler/objects/pods/" + name + "/"
	s := a.await("hostler status names the right", func(s api.Status) bool {
		return strings.Contains(loopOf(t, s, "pod-objects").LastError, grant)
	})
	mentions(t, "the loop", loopOf(t, s, "pod-objects").LastError, grant)
	mentions(t, "hostler status", a.screen(), "pod-objects", grant)
	eventuallyMentions(t, "hostler doctor", a.doctor, "etcd does not allow: read /hostler/objects/pods/"+name+"/", grant)
	eventually(t, "the host is Ready", func() bool { return f.alive(name) && f.node(name) != nil })
	f.ctl("role", "grant-permission", name, "--prefix", "readwrite", "/hostler/objects/pods/"+name+"/")
	a.await("the loop is well with the right", func(s api.Status) bool {
		return !strings.Contains(loopOf(t, s, "pod-objects").LastError, grant)
	})
	a.stop()
}
