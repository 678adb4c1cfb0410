package pods_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status/pods"
)

func TestAnObjectHasWhatTheFleetNeeds(t *testing.T) {
	f := facts(web(func(p *runtime.Pod) {
		p.Containers = append(p.Containers, runtime.Container{Runtime: "containerd", ID: "c0", Name: "init", Image: "init:1", State: runtime.Exited, FinishedAt: began})
	}))
	f.Networks = map[pods.PodKey]runtime.PodNetwork{{Runtime: "containerd", ID: "s1"}: {IPs: []string{"10.0.0.7", "fd00::7"}}}
	got, err := json.MarshalIndent(pods.Desire(f).Running["shop/web"], "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "kind": "Pod",
 "apiVersion": "v1",
 "metadata": {
  "name": "web",
  "namespace": "shop",
  "uid": "u1",
  "creationTimestamp": "2026-01-02T03:04:05Z",
  "labels": {
   "app": "web"
  },
  "ownerReferences": [
   {
    "apiVersion": "v1",
    "kind": "Node",
    "name": "n1",
    "uid": "node-uid"
   }
  ]
 },
 "spec": {
  "containers": [
   {
    "name": "init",
    "image": "init:1",
    "resources": {}
   },
   {
    "name": "main",
    "image": "web:1",
    "resources": {}
   }
  ],
  "nodeName": "n1",
  "tolerations": [
   {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300
   },
   {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300
   }
  ]
 },
 "status": {
  "phase": "Running",
  "conditions": [
   {
    "type": "Ready",
    "status": "True",
    "lastProbeTime": null,
    "lastTransitionTime": null
   }
  ],
  "hostIP": "192.0.2.1",
  "hostIPs": [
   {
    "ip": "192.0.2.1"
   },
   {
    "ip": "2001:db8::1"
   }
  ],
  "podIP": "10.0.0.7",
  "podIPs": [
   {
    "ip": "10.0.0.7"
   },
   {
    "ip": "fd00::7"
   }
  ],
  "startTime": "2026-01-02T03:04:05Z",
  "containerStatuses": [
   {
    "name": "init",
    "state": {
     "terminated": {
      "exitCode": 0,
      "reason": "Completed",
      "startedAt": null,
      "finishedAt": "2026-01-02T03:04:05Z",
      "containerID": "containerd://c0"
     }
    },
    "lastState": {},
    "ready": false,
    "restartCount": 0,
    "image": "init:1",
    "imageID": "",
    "containerID": "containerd://c0"
   },
   {
    "name": "main",
    "state": {
     "running": {
      "startedAt": "2026-01-02T03:04:05Z"
     }
    },
    "lastState": {},
    "ready": true,
    "restartCount": 0,
    "image": "web:1",
    "imageID": "sha256:1",
    "containerID": "containerd://c1"
   }
  ]
 }
}`
	if string(got) != want {
		t.Errorf("object = %s, want %s", got, want)
	}
	f.Networks = map[pods.PodKey]runtime.PodNetwork{{Runtime: "containerd", ID: "s1"}: {Host: true}}
	if o := pods.Desire(f).Running["shop/web"]; !o.Spec.HostNetwork || o.Status.PodIP != "192.0.2.1" || len(o.Status.PodIPs) != 2 {
		t.Errorf("object in the network of the host = %+v, want the addresses of the host", o)
	}
}

func TestReadyNamesWhatIsNotReady(t *testing.T) {
	with := func(c runtime.Container) func(*runtime.Pod) {
		return func(p *runtime.Pod) { p.Containers = append(p.Containers, c) }
	}
	for name, tt := range map[string]struct {
		pod    runtime.Pod
		phase  corev1.PodPhase
		status corev1.ConditionStatus
		reason string
	}{
		"all run":              {web(), corev1.PodRunning, corev1.ConditionTrue, ""},
		"the sandbox is down":  {web(func(p *runtime.Pod) { p.Ready = false }), corev1.PodRunning, corev1.ConditionFalse, "SandboxNotReady"},
		"one has failed":       {web(with(runtime.Container{Name: "side", State: runtime.Exited, ExitCode: 1, FinishedAt: began})), corev1.PodRunning, corev1.ConditionFalse, "ContainersNotReady"},
		"one is created":       {web(with(runtime.Container{Name: "side", State: runtime.Created})), corev1.PodRunning, corev1.ConditionFalse, "ContainersNotReady"},
		"one waits to restart": {web(with(runtime.Container{Name: "side", State: runtime.Running, Restarting: true})), corev1.PodRunning, corev1.ConditionFalse, "ContainersNotReady"},
		"one is lost":          {web(with(runtime.Container{Name: "side"})), corev1.PodRunning, corev1.ConditionFalse, "ContainersNotReady"},
		"all have completed":   {web(ended(0)), corev1.PodSucceeded, corev1.ConditionFalse, "PodCompleted"},
		"all have failed":      {web(ended(2)), corev1.PodFailed, corev1.ConditionFalse, "PodFailed"},
		"nobody knows the end": {web(func(p *runtime.Pod) { p.Containers[0].State = runtime.Exited }), corev1.PodFailed, corev1.ConditionFalse, "PodFailed"},
		"none was ever there":  {web(func(p *runtime.Pod) { p.Containers = nil }), corev1.PodSucceeded, corev1.ConditionFalse, "PodCompleted"},
		"a dead one was replaced": {web(func(p *runtime.Pod) {
			dead := p.Containers[0]
			dead.ID, dead.State, dead.ExitCode = "c0", runtime.Exited, 1
			p.Containers = []runtime.Container{dead, p.Containers[0]}
		}), corev1.PodRunning, corev1.ConditionTrue, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := object(t, tt.pod).Status
			if c := s.Conditions[0]; s.Phase != tt.phase || c.Status != tt.status || c.Reason != tt.reason {
				t.Errorf("phase, Ready = %s, %+v, want %s, %s %s", s.Phase, c, tt.phase, tt.status, tt.reason)
			}
		})
	}
}

func TestNamesAreValidAndDistinct(t *testing.T) {
	for _, tt := range []struct{ namespace, name, want string }{
		{"shop", "web", "shop/web"},
		{"", "web", "docker/web"},
		{"shop", "", "shop/id"},
		{"shop", "My_Web", "shop/my-web-f5e0ee76"},
		{"docker", "web", "docker-"},
		{"crun", "web", "crun-"},
		{"shop", "my_web", "shop/my-web-"},
		{"a/b", "../../x", "a-b-"},
		{"shop", "//", "shop/"},
		{"shop", "ü", "shop/"},
		{"a.b", "web.1", "a-b-"},
		{strings.Repeat("n", 100), strings.Repeat("w", 300), strings.Repeat("n", 30) + "-"},
	} {
		namespace, name := pods.Names(runtime.Pod{Runtime: "docker", ID: "id", Namespace: tt.namespace, Name: tt.name})
		if got := namespace + "/" + name; !strings.HasPrefix(got, tt.want) && tt.name != "My_Web" {
			t.Errorf("Names(%q, %q) = %s, want %s", tt.namespace, tt.name, got, tt.want)
		}
		if strings.Contains(namespace+name, "/") || len(namespace) > 63 || len(name) > 253 || namespace == "" || name == "" {
			t.Errorf("Names(%q, %q) = %q, %q, want valid names", tt.namespace, tt.name, namespace, name)
		}
	}
	_, long := pods.Names(runtime.Pod{Runtime: "docker", ID: "compose:shop"})
	if hash, found := strings.CutPrefix(long, "compose-shop-"); !found || len(hash) < 32 {
		t.Errorf("the object of a project is named %q, want a hash of 128 bits: others choose names with the same hash", long)
	}
	_, a := pods.Names(runtime.Pod{Runtime: "docker", Name: "My_Web"})
	_, b := pods.Names(runtime.Pod{Runtime: "docker", Name: "my_web"})
	_, c := pods.Names(runtime.Pod{Runtime: "docker", Name: "my-web"})
	if a == b || b == c || a == c {
		t.Errorf("names = %s, %s, %s, want three", a, b, c)
	}
}

// Whoever creates a container or a project chooses its name.
func TestANameIsNotThatOfAnObjectOfAnotherPod(t *testing.T) {
	project := runtime.Pod{Runtime: "docker", ID: "compose:web", Name: "web"}
	_, ofProject := pods.Names(project)
	_, ofInvalid := pods.Names(runtime.Pod{Runtime: "docker", ID: "c1", Name: "My_Web"})
	_, ofSymbols := pods.Names(runtime.Pod{Runtime: "docker", ID: "c2", Name: "__"})
	for _, taken := range []string{ofProject, ofInvalid, ofSymbols, "web"} {
		_, name := pods.Names(runtime.Pod{Runtime: "docker", ID: "c3", Name: taken})
		if (name == taken) != (taken == "web") {
			t.Errorf("the object of container %q is named %q, which is the name of another pod's object", taken, name)
		}
		if taken == "web" && name == ofProject {
			t.Errorf("a container and a project named web share object %q", name)
		}
	}
	if _, name := pods.Names(runtime.Pod{Runtime: "docker", ID: "c4", Name: "backup-20240131"}); name != "backup-20240131" {
		t.Errorf("the object of a container without a namespace is named %q, want its own name", name)
	}
	if _, name := pods.Names(runtime.Pod{Runtime: "containerd", ID: "c4", Namespace: "shop", Name: ofInvalid}); name != ofInvalid {
		t.Errorf("the object of a pod with a namespace is named %q, want its own name", name)
	}
}

func TestAHostHasABoundedNumberOfObjects(t *testing.T) {
	numbered := func(i int, edits ...func(*runtime.Pod)) runtime.Pod {
		return web(append(edits, func(p *runtime.Pod) {
			p.ID, p.Name, p.CreatedAt = fmt.Sprint("s", i), fmt.Sprint("web-", i), began.Add(time.Duration(i)*time.Second)
		})...)
	}
	var many []runtime.Pod
	for i := range pods.MostPods + 2 {
		many = append(many, numbered(pods.MostPods+1-i)) // the latest first
	}
	d := pods.Desire(facts(many...))
	if len(d.Running) != pods.MostPods || len(d.Skipped) != 2 || d.Skipped[1].Path != "shop/web-501" || !d.Kept["shop/web-501"] {
		t.Errorf("Desire() = %d objects, left out %v, want the latest two left out", len(d.Running), d.Skipped)
	}

	imaged := func(kib int) func(*runtime.Pod) {
		return func(p *runtime.Pod) { p.Containers[0].Image = strings.Repeat("x", kib<<10/2) } // in spec and status
	}
	many = nil
	for i := range 17 {
		many = append(many, numbered(i, imaged(62)))
	}
	d = pods.Desire(facts(append(many, numbered(17), numbered(18, imaged(64)))...))
	if len(d.Running) != 17 || len(d.Skipped) != 2 || d.Skipped[0].Path != "shop/web-16" || d.Skipped[1].Reason != "its object has more than 64 KiB" || d.Running["shop/web-17"] == nil {
		t.Errorf("Desire() = %d objects, left out %v, want those left out that do not fit", len(d.Running), d.Skipped)
	}
}

func TestLargeLabelsOfOldPodsLeaveSpaceForNewPods(t *testing.T) {
	large := map[string]string{"app": "web"}
	for i := range 50 {
		large[fmt.Sprint("large-", i)] = strings.Repeat("x", 1000)
	}
	var many []runtime.Pod
	for i := range 110 { // as many as a Node has by default
		many = append(many, web(func(p *runtime.Pod) {
			p.ID, p.Name, p.Labels, p.CreatedAt = fmt.Sprint("s", i), fmt.Sprint("web-", i), large, began.Add(time.Duration(i)*time.Second)
		}))
	}
	d := pods.Desire(facts(many...))
	if newest := d.Running["shop/web-109"]; newest == nil || newest.Labels["app"] != "web" || len(d.Skipped) > 0 {
		t.Errorf("Desire() = %d objects, the newest %v, left out %d, want all, with small labels", len(d.Running), newest, len(d.Skipped))
	}
}

func TestAnOlderPodKeepsItsObject(t *testing.T) {
	d := pods.Desire(facts(web(uid("u2"), func(p *runtime.Pod) { p.ID, p.CreatedAt = "s2", began.Add(time.Hour) }), web()))
	if d.Running["shop/web"].UID != "u1" || len(d.Skipped) != 1 {
		t.Errorf("Desire() = UID %s, left out %v, want the older pod's object", d.Running["shop/web"].UID, d.Skipped)
	}
	d = pods.Desire(facts(web(ended(0)), web(uid("u2"))))
	if d.Running["shop/web"].UID != "u2" || len(d.Skipped) != 0 {
		t.Errorf("Desire() = UID %s, left out %v, want the object of the one that runs", d.Running["shop/web"].UID, d.Skipped)
	}
}
