//go:build integration

package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// newPod returns a pod that is ready on a Node, with a toleration of any NoExecute taint for that
// many seconds; without one if negative.
func newPod(node, name string, seconds int64) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "example.com/c:1"}}},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	if seconds >= 0 {
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}}
	}
	return pod
}

// podState returns "present" or "evicted", and Ready. It fails the test for a wrong evicted pod.
func podState(t testing.TB, pod *corev1.Pod) string {
	t.Helper()
	state, ready := "present", corev1.ConditionUnknown
	if pod.DeletionTimestamp != nil {
		state = "evicted"
	}
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady:
			ready = c.Status
		case c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "DeletionByTaintManager" && state == "evicted":
			state = "evicted as a target"
		}
	}
	return fmt.Sprintf("%s, Ready %s", state, ready)
}

const (
	podWell    = "present, Ready True"
	podLost    = "present, Ready False"
	podEvicted = "evicted as a target, Ready False"
	podLeaves  = "evicted as a target, Ready True"
	podMoved   = "evicted, Ready True" // with the eviction API
	podGone    = "gone"
)

// putPod stores a pod as its host does.
func (f etcdFleet) putPod(pod *corev1.Pod) {
	f.t.Helper()
	pod.UID = types.UID("uid-of-" + pod.Name)
	value, err := store.Pods(true).Encode(pod)
	check(f.t, err)
	check(f.t, f.Put(within(f.t), "/hostler/objects/pods/"+store.Pods(true).NameOf(pod), string(value)))
}

// podOn returns the state of a pod; podGone if there is none.
func (f etcdFleet) podOn(node, name string) string {
	f.t.Helper()
	stored := f.pod(podAt(node, name))
	if stored == nil {
		return podGone
	}
	return podState(f.t, stored)
}

// podBecomes waits until a pod is in that state.
func (f etcdFleet) podBecomes(node, name, want string) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("pod %s is %s", name, want), func() bool { return f.podOn(node, name) == want })
}

// TestAServerEvictsPodsOfAFleetInEtcd has pods that the test reports instead of agents.
func TestAServerEvictsPodsOfAFleetInEtcd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	const pace = "lease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n"
	agents := map[string]*agent{}
	// n1 lives all the time, and its pod tolerates no taint at all.
	for name, pace := range map[string]string{"n1": strings.Replace(pace, "10s", "1h", 1), "n2": pace} {
		agents[name] = startAgent(t, f.settings(name, "")+pace)
	}
	for name := range agents {
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	f.putPod(newPod("n1", "other", 0))
	for name, seconds := range map[string]int64{"at-once": -1, "soon": 5, "late": 3600} {
		f.putPod(newPod("n2", name, seconds))
	}
	s := startServer(t, f.served(""))
	eventually(t, "the server leads", s.leads)
	agents["n2"].kill()
	f.podBecomes("n2", "at-once", podEvicted)
	f.podBecomes("n2", "soon", podEvicted)
	f.podBecomes("n2", "late", podLost)
	eventuallyMentions(t, "hostler fleet plan", func() string { return onOneLine(s.prints("plan")) }, "pods/n2/default/late - evict the pod", "tolerates for 1h0m0s")
	if got := f.podOn("n1", "other"); got != podWell {
		t.Errorf("pod of the host that is alive is %s, want %s", got, podWell)
	}
	// Unreadable or wrong objects are reported, and stop nothing.
	check(t, f.Put(within(t), "/hostler/objects/pods/n2/default/broken", "{"))
	lie, err := store.Pods(true).Encode(newPod("n1", "lie", -1))
	check(t, err)
	check(t, f.Put(within(t), "/hostler/objects/pods/n2/default/lie", string(lie)))
	eventually(t, "they are named", func() bool {
		text := s.prints("status")
		return strings.Contains(text, "pods/n2/default/broken") && strings.Contains(text, `it is named "n1/default/lie"`)
	})
	// If a Node is deleted, the objects of its pods are deleted, too.
	f.ctl("del", "/hostler/nodes/n2")
	for _, name := range []string{"at-once", "soon", "late"} {
		f.podBecomes("n2", name, podGone)
	}
	if got := f.podOn("n1", "other"); got != podWell {
		t.Errorf("pod of the host that is alive is %s, want %s", got, podWell)
	}
}

// TestAPodOfADeadHostIsGoneOnceItHasEnded has agents that report real pods.
func TestAPodOfADeadHostIsGoneOnceItHasEnded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	const name = "evicted-web"
	const pace = "lease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s, pods: true}\n"
	startAgent(t, f.settings("n1", "")+strings.Replace(pace, ", pods: true", "", 1))
	a := startAgent(t, f.settings("n2", "")+pace)
	for _, host := range []string{"n1", "n2"} {
		eventually(t, host+" is there, Ready and alive", f.well(host))
	}
	p := pod(t, name, nil, 0, lab.ServeFor(0))
	f.podBecomes("n2", name, podWell)
	s := startServer(t, f.served(""))
	eventually(t, "the server leads", s.leads)

	a.kill()
	f.podBecomes("n2", name, podLost)
	// Pods do not tolerate a person's taint, unlike that of a host without a sign of life.
	f.change("n2", func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "example.com/broken", Effect: corev1.TaintEffectNoExecute})
	})
	f.podBecomes("n2", name, podEvicted)
	// The host returns. Its pod still runs, so the object stays.
	a.start()
	f.becomes("n2", corev1.ConditionTrue, "")
	f.podBecomes("n2", name, podLeaves)
	_, err := containerd.Runtime.StopContainer(t.Context(), stopNow(p))
	check(t, err)
	f.podBecomes("n2", name, podGone)
}

// pod returns the state of a pod; podGone if there is none.
func (c cluster) pod(name string) string {
	c.t.Helper()
	pod := c.storedPod(name)
	if pod == nil {
		return podGone
	}
	return podState(c.t, pod)
}

// podBecomes waits until a pod is in that state.
func (c cluster) podBecomes(name, want string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("pod %s is %s", name, want), func() bool { return c.pod(name) == want })
}

// createPod creates a pod that its Node reports as ready.
func (c cluster) createPod(pod *corev1.Pod) {
	c.t.Helper()
	text, err := json.Marshal(pod)
	check(c.t, err)
	check(c.t, c.Apply(within(c.t), string(text)))
	status, err := json.Marshal(map[string]any{"status": pod.Status})
	check(c.t, err)
	c.kubectl("patch", "pod", pod.Name, "--subresource=status", "--type=strategic", "-p", string(status))
}

// TestAServerEvictsPodsOfACluster runs no kube-controller-manager and no kubelet.
func TestAServerEvictsPodsOfACluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	c.kubectl("create", "serviceaccount", "default") // kube-controller-manager creates it in a real cluster
	const pace = "lease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n"
	startAgent(t, c.asNode("n1", "")+pace)
	a := startAgent(t, c.asNode("n2", "")+pace)
	for _, name := range []string{"n1", "n2"} {
		eventually(t, name+" is Ready", c.ready(name))
	}
	s := startServer(t, c.served("nodeLifecycle: {gracePeriod: 40s}")) // a pod of n1 tolerates no taint at all
	eventually(t, "the server leads", s.leads)
	c.becomes("n1", corev1.ConditionTrue, "")
	c.becomes("n2", corev1.ConditionTrue, "")
	c.createPod(newPod("n1", "other", 0))
	for name, seconds := range map[string]int64{"default": -1, "soon": 5, "late": 3600} {
		c.createPod(newPod("n2", name, seconds))
	}
	// A person taints a live host.
	c.createPod(newPod("n1", "tainted", -1))
	c.kubectl("taint", "node", "n1", "example.com/repair=disk:NoExecute")
	c.podBecomes("tainted", podLeaves)
	c.podBecomes("other", podLeaves)
	eventually(t, "an Event of the pod says why it was evicted", func() bool {
		return strings.Contains(c.kubectl("get", "events", "-n", "default", "--field-selector=involvedObject.name=tainted", "-o", "jsonpath={.items[*].reason}"), "TaintManagerEviction")
	})
	c.kubectl("taint", "node", "n1", "example.com/repair-")
	// A host dies.
	a.kill()
	c.podBecomes("soon", podEvicted)
	c.podBecomes("late", podLost)
	c.podBecomes("default", podLost) // the API server gives each pod a toleration of 5 minutes
	c.unrefused(serverUser)
}

// TestAControllerNamesTheRightThatItLacks runs each controller with only its roles, and then without
// the first verb of them, with HOSTLER_TEST_LONG without each.
func TestAControllerNamesTheRightThatItLacks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	c.kubectl("create", "serviceaccount", "default")
	base := c.served("")
	for _, controller := range []string{"node-lifecycle", "eviction", "clones", "garbage-collector", "reboots"} {
		roles := []role{c.role("hostler-"+controller, "")}
		if controller == "node-lifecycle" {
			roles = append(roles, c.role("hostler-node-leases", "kube-node-lease"))
		}
		c.kubectl("delete", "clusterrolebinding", "hostler-node-lifecycle", "hostler-eviction", "hostler-clones", "hostler-garbage-collector", "hostler-reboots", "--ignore-not-found")
		c.kubectl("create", "clusterrolebinding", "hostler-"+controller, "--clusterrole=hostler-"+controller, "--user="+serverUser)
		s := startServer(t, base+"\ncontrollers: ["+controller+"]\nnodeLifecycle: {startupGracePeriod: 10s}")
		lacks := []lack{{role: roles[0], name: "nothing"}}
		for _, r := range roles {
			for n := range r.verbs() {
				lacks = append(lacks, r.without(n))
			}
		}
		for i, missing := range lacks {
			if missing.name == "list *" || i > 1 && !lab.Long() { // a watch lists as well, except on an older server
				continue
			}
			t.Run(controller+" without "+missing.name, func(t *testing.T) {
				c := cluster{c.Cluster, t}
				for _, r := range append(roles, missing.role) {
					c.putRole(r)
				}
				c.scene(controller, i)
				s.end(15)
				s.start()
				if missing.name == "nothing" {
					eventually(t, "the objects are as the controller wants them", c.acted(controller, i))
					return
				}
				eventually(t, "the server names what it lacks", func() bool { return strings.Contains(s.prints("status", "-o", "wide"), missing.message) })
			})
		}
		s.end(15)
		for _, r := range roles {
			c.putRole(r)
		}
	}
}

// TestAServerWithTheDefaultRightsNamesTheManifestThatItLacks runs controllers of
// kube-controller-manager with the rights for a server beside it.
func TestAServerWithTheDefaultRightsNamesTheManifestThatItLacks(t *testing.T) {
	lab.TakesMinutes(t)
	t.Parallel()
	c := newCluster(t, kube.Options{})
	c.kubectl("create", "serviceaccount", "default")
	check(t, c.ApplyFiles(within(t), manifests+"server-rbac.yaml"))
	file, err := c.Kubeconfig(kube.User{Name: serverUser})
	check(t, err)
	s := startServer(t, "store: {type: kubernetes, kubernetes: {kubeconfig: "+file+"}}\ncontrollers: [node-lifecycle, eviction, garbage-collector]\nnodeLifecycle: {startupGracePeriod: 10s}")
	c.scene("node-lifecycle", 0)
	c.scene("eviction", 0)
	c.scene("garbage-collector", 0)
	for _, want := range [][]string{
		{`cannot watch resource "`, "no right to list and watch them", "kubectl apply -f /usr/share/doc/hostler-server/server-rbac-garbage-collector.yaml"},
		{`cannot patch resource "nodes`, "kubectl apply -f /usr/share/doc/hostler-server/server-rbac-node-lifecycle.yaml", "add -node-lifecycle to"},
		{`"pods`, "add -eviction to"},
	} {
		eventuallyMentions(t, "hostler fleet status", func() string { return onOneLine(s.prints("status")) }, want...)
	}
	eventuallyMentions(t, "the log", s.logged, `msg="no right to list and watch a kind`, `msg="cannot change object, retrying"`)
	if count := strings.Count(s.logged(), "no right to list and watch a kind"); count != 1 {
		t.Errorf("the log says %d times that kinds cannot be listed, want once", count)
	}
	for _, manifest := range []string{"server-rbac-garbage-collector.yaml", "server-rbac-node-lifecycle.yaml"} {
		check(t, c.ApplyFiles(within(t), manifests+manifest))
	}
	c.podBecomes("node-lifecycle-0", podLost)
	c.podBecomes("eviction-0", podEvicted)
	eventually(t, "objects without owners are deleted", c.acted("garbage-collector", 0))
	eventually(t, "nothing is missing any more", func() bool { return !strings.Contains(s.prints("status"), "kubectl apply") })
}

// scene creates a Node and a pod on which a controller has to act. i distinguishes the scenes.
func (c cluster) scene(controller string, i int) {
	c.t.Helper()
	node := fmt.Sprintf("%s-%d", controller, i)
	if controller == "garbage-collector" { // one to delete, and one to patch
		check(c.t, c.Apply(within(c.t), configMap(node, "")))
		none := fmt.Sprintf("{kind: ConfigMap, apiVersion: v1, name: none, uid: 00000000-0000-4000-8000-%012d}", i)
		owner := fmt.Sprintf("{kind: ConfigMap, apiVersion: v1, name: %s, uid: %s}", node, c.kubectl("get", "configmap", node, "-o", "jsonpath={.metadata.uid}"))
		check(c.t, c.Apply(within(c.t), configMap(node+"-delete", "", "ownerReferences: ["+none+"]")+configMap(node+"-patch", "", "ownerReferences: ["+none+", "+owner+"]")))
		return
	}
	if controller == "clones" { // a clone that has died
		check(c.t, c.Apply(within(c.t), fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"annotations":{%q:"gone"}}}`, node, controlplane.AnnotationSameMachine)))
		return
	}
	if controller == "reboots" { // a host that waits for its pods to be evicted
		c.createPod(newPod(node, node, -1))
		request := `{"id":"r1","step":"Draining","reason":"kernel","emptiedByServer":true}`
		check(c.t, c.Apply(within(c.t), fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"annotations":{%q:%q}}}`, node, controlplane.AnnotationReboot, request)))
		return
	}
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q},"spec":{"taints":[{"key":"example.com/t","effect":"NoExecute"}]}}`, node)
	check(c.t, c.Apply(within(c.t), manifest))
	pod := newPod(node, node, -1)
	if controller == "node-lifecycle" {
		pod = newPod(node, node, 3600)
	}
	c.createPod(pod)
}

// acted reports whether the controller has acted.
func (c cluster) acted(controller string, i int) func() bool {
	return func() bool {
		if controller == "garbage-collector" {
			node, owners := fmt.Sprintf("%s-%d", controller, i), map[string][]string{}
			var left corev1.ConfigMapList
			c.read("/api/v1/namespaces/default/configmaps", &left)
			for _, m := range left.Items {
				owners[m.Name] = []string{}
				for _, o := range m.OwnerReferences {
					owners[m.Name] = append(owners[m.Name], o.Name)
				}
			}
			return owners[node+"-delete"] == nil && slices.Equal(owners[node+"-patch"], []string{node})
		}
		if controller == "clones" {
			return c.node(fmt.Sprintf("%s-%d", controller, i)).Annotations[controlplane.AnnotationSameMachine] == ""
		}
		state := c.pod(fmt.Sprintf("%s-%d", controller, i))
		return state == map[string]string{"node-lifecycle": podLost, "eviction": podLeaves, "reboots": podMoved}[controller]
	}
}

// role is a ClusterRole, or a Role of a namespace.
type role struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   map[string]string `json:"metadata"`
	Rules      []rule            `json:"rules"`
}

type rule struct {
	APIGroups []string `json:"apiGroups"`
	Resources []string `json:"resources"`
	Verbs     []string `json:"verbs"`
}

// role reads a Role; a ClusterRole without a namespace.
func (c cluster) role(name, namespace string) role {
	c.t.Helper()
	r := role{Kind: "ClusterRole", APIVersion: "rbac.authorization.k8s.io/v1", Metadata: map[string]string{"name": name}}
	if namespace != "" {
		r.Kind, r.Metadata["namespace"] = "Role", namespace
	}
	var stored struct {
		Rules []rule `json:"rules"`
	}
	check(c.t, json.Unmarshal([]byte(c.kubectl("get", r.Kind, name, "-n", namespace, "-o", "json")), &stored))
	r.Rules = stored.Rules
	return r
}

func (c cluster) putRole(r role) {
	c.t.Helper()
	stored := r // a stored rule needs at least one verb
	stored.Rules = slices.DeleteFunc(slices.Clone(r.Rules), func(rule rule) bool { return len(rule.Verbs) == 0 })
	text, err := json.Marshal(stored)
	check(c.t, err)
	check(c.t, c.Apply(within(c.t), string(text)))
}

// lack is a role without one of its verbs.
type lack struct {
	role          role
	name, message string
}

// verbs returns all pairs of a rule and a verb.
func (r role) verbs() (all [][2]int) {
	for i, rule := range r.Rules {
		for k := range rule.Verbs {
			all = append(all, [2]int{i, k})
		}
	}
	return all
}

// without returns the role without its n-th verb, counted from 0.
func (r role) without(n int) lack {
	at := r.verbs()[n]
	left, from := r, r.Rules[at[0]]
	verb := from.Verbs[at[1]]
	left.Rules = slices.Clone(r.Rules)
	left.Rules[at[0]].Verbs = slices.Delete(slices.Clone(from.Verbs), at[1], at[1]+1)
	if len(from.Verbs) == 1 {
		left.Rules = slices.Delete(left.Rules, at[0], at[0]+1)
	}
	resource := from.Resources[0]
	message := fmt.Sprintf("cannot %s resource %q", verb, resource)
	switch { // the resource of the scene, or any
	case resource == "*" && verb == "watch":
		message = `cannot watch resource "`
	case resource == "*":
		message = fmt.Sprintf("cannot %s resource %q", verb, "configmaps")
	}
	return lack{role: left, name: verb + " " + resource, message: message}
}
