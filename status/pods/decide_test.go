package pods_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status/pods"
)

var (
	began = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	now   = began.Add(time.Hour)
)

// facts returns the facts of a host with these pods.
func facts(list ...runtime.Pod) pods.Facts {
	return pods.Facts{Node: pods.NodeFacts{Name: "n1", UID: "node-uid", IPs: []string{"192.0.2.1", "2001:db8::1"}}, Pods: list}
}

// web returns a pod with one running container, changed by edits.
func web(edits ...func(*runtime.Pod)) runtime.Pod {
	p := runtime.Pod{
		Runtime: "containerd", ID: "s1", UID: "u1", Namespace: "shop", Name: "web", Ready: true, Sandbox: true, CreatedAt: began,
		Labels:     map[string]string{"app": "web"},
		Containers: []runtime.Container{{Runtime: "containerd", ID: "c1", Name: "main", Image: "web:1", ImageID: "sha256:1", State: runtime.Running, CreatedAt: began}},
	}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

// ended returns an edit that ends all containers of a pod with that exit code.
func ended(code int32) func(*runtime.Pod) {
	return func(p *runtime.Pod) {
		for i := range p.Containers {
			c := &p.Containers[i]
			c.State, c.ExitCode, c.FinishedAt = runtime.Exited, code, began.Add(time.Minute)
		}
	}
}

func uid(uid string) func(*runtime.Pod) { return func(p *runtime.Pod) { p.UID = uid } }

// object returns Desire's object for the pod shop/web.
func object(t *testing.T, p runtime.Pod) *corev1.Pod {
	t.Helper()
	d := pods.Desire(facts(p))
	for _, objects := range []map[string]*corev1.Pod{d.Running, d.Ended} {
		if o := objects["shop/web"]; o != nil {
			return o
		}
	}
	t.Fatalf("Desire() = %+v, want an object of shop/web", d)
	return nil
}

// stored returns an object as it is read.
func stored(t *testing.T, o *corev1.Pod) pods.Stored {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	have, err := pods.Read(controlplane.StoredPod{Path: "shop/web", Value: text, Version: controlplane.PodVersion{Connection: 1, Create: 1, Mod: 2}})
	if err != nil {
		t.Fatalf("Read() = %v, want no error", err)
	}
	return have
}

// first returns the first stored object of a pod, changed by edits of others.
func first(t *testing.T, p runtime.Pod, edits ...func(*corev1.Pod)) pods.Stored {
	t.Helper()
	c := pods.Decide(object(t, p), pods.Stored{}, began)
	if c.Action != pods.Put {
		t.Fatalf("Decide() of a new pod = %v, want Put", c.Action)
	}
	for _, edit := range edits {
		edit(c.Pod)
	}
	return stored(t, c.Pod)
}

// Edits by others.
func deleted(o *corev1.Pod) {
	at, grace := metav1.NewTime(began.Add(time.Second)), int64(30)
	o.DeletionTimestamp, o.DeletionGracePeriodSeconds = &at, &grace
}

func finalized(o *corev1.Pod) { o.Finalizers = []string{"example.com/wait"} }

func annotated(o *corev1.Pod) { o.Annotations = map[string]string{"example.com/note": "kept"} }

func disrupted(o *corev1.Pod) {
	c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager", LastTransitionTime: metav1.NewTime(began)}
	o.Status.Conditions = append([]corev1.PodCondition{c}, o.Status.Conditions...)
}

func conditionOf(o *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range o.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// TestDecide has a row for each rule.
func TestDecide(t *testing.T) {
	unreadable := pods.Stored{Version: controlplane.PodVersion{Connection: 1, Create: 1, Mod: 1}}
	stopped := func(p *runtime.Pod) { p.Containers[0].State = runtime.Exited; p.Containers[0].FinishedAt = began }
	none := func() *corev1.Pod { return nil }
	is := func(edits ...func(*runtime.Pod)) func() *corev1.Pod {
		return func() *corev1.Pod { return object(t, web(edits...)) }
	}
	keeps := func(t *testing.T, o *corev1.Pod) {
		t.Helper()
		if o.DeletionTimestamp == nil || !o.DeletionTimestamp.Equal(ptr(metav1.NewTime(began.Add(time.Second).Truncate(time.Second)))) || *o.DeletionGracePeriodSeconds != 30 {
			t.Errorf("deletion = %v, %v, want it kept", o.DeletionTimestamp, o.DeletionGracePeriodSeconds)
		}
	}
	for name, tt := range map[string]struct {
		want  func() *corev1.Pod
		have  pods.Stored
		act   pods.Action
		waits bool
		check func(*testing.T, *corev1.Pod)
	}{
		"a pod that runs gets an object": {want: is(), act: pods.Put, check: func(t *testing.T, o *corev1.Pod) {
			if o.UID != "u1" || o.Status.Phase != corev1.PodRunning || !conditionOf(o, corev1.PodReady).LastTransitionTime.Time.Equal(now.Truncate(time.Second)) {
				t.Errorf("object = %+v, want that of the pod, Ready since now", o)
			}
		}},
		"an object that is as it should be stays":     {want: is(), have: first(t, web()), act: pods.Keep},
		"so does one with what others wrote":          {want: is(), have: first(t, web(), deleted, finalized, annotated, disrupted), act: pods.Keep},
		"a pod that neither runs nor is stored":       {want: none, act: pods.Keep},
		"a pod that has ended and is not stored":      {want: is(ended(0)), act: pods.Keep},
		"the object of a pod that was removed":        {want: none, have: first(t, web()), act: pods.Delete},
		"the object of a pod that has ended":          {want: is(ended(0)), have: first(t, web()), act: pods.Delete},
		"that of one that was to be deleted":          {want: is(ended(0)), have: first(t, web(), deleted), act: pods.Delete},
		"an object without a pod that cannot be read": {want: none, have: unreadable, act: pods.Delete},
		"an object of a pod that cannot be read":      {want: is(), have: unreadable, act: pods.Put},
		"a request to delete does not stop a pod":     {want: is(), have: first(t, web(), deleted), act: pods.Keep},
		"a pod that was removed, and others are to see": {want: none, have: first(t, web(), finalized, disrupted), act: pods.Put, check: func(t *testing.T, o *corev1.Pod) {
			if o.DeletionTimestamp == nil || !o.DeletionTimestamp.Time.Equal(now.Truncate(time.Second)) || o.Status.Phase != corev1.PodFailed {
				t.Errorf("deletion, phase = %v, %s, want now, Failed", o.DeletionTimestamp, o.Status.Phase)
			}
			if len(o.Finalizers) != 1 || conditionOf(o, corev1.DisruptionTarget).Reason == "" || conditionOf(o, corev1.PodReady).Status != corev1.ConditionFalse {
				t.Errorf("object = %+v, want finalizer and condition of others kept, and not Ready", o)
			}
			if s := o.Status.ContainerStatuses[0]; s.Ready || s.State.Terminated == nil {
				t.Errorf("status of the container = %+v, want it terminated", s)
			}
		}},
		"a pod that has ended well, and others are to see": {want: is(ended(0)), have: first(t, web(), finalized, deleted), act: pods.Put, check: func(t *testing.T, o *corev1.Pod) {
			keeps(t, o)
			if s := o.Status; s.Phase != corev1.PodSucceeded || s.ContainerStatuses[0].State.Terminated.Reason != "Completed" {
				t.Errorf("status = %+v, want Succeeded", s)
			}
		}},
		"a pod that has failed, and others are to see": {want: is(ended(3)), have: first(t, web(), finalized), act: pods.Put, check: func(t *testing.T, o *corev1.Pod) {
			if s := o.Status; s.Phase != corev1.PodFailed || s.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
				t.Errorf("status = %+v, want Failed with exit code 3", s)
			}
		}},
		"another pod that has ended says nothing of it": {want: is(ended(0), uid("u0")), have: first(t, web(), finalized), act: pods.Put, check: func(t *testing.T, o *corev1.Pod) {
			if o.Status.Phase != corev1.PodFailed || o.UID != "u1" {
				t.Errorf("phase, UID = %s, %s, want Failed, u1", o.Status.Phase, o.UID)
			}
		}},
		"a pod that starts again keeps the request to delete it": {want: is(), have: first(t, web(), func(o *corev1.Pod) {
			deleted(o)
			finalized(o)
			o.Status.Phase = corev1.PodSucceeded
		}), act: pods.Put, check: func(t *testing.T, o *corev1.Pod) {
			keeps(t, o)
			if o.Status.Phase != corev1.PodRunning {
				t.Errorf("phase = %s, want Running", o.Status.Phase)
			}
		}},
		"another pod of the name is a new object": {want: is(uid("u2")), have: first(t, web(), deleted, annotated, disrupted), act: pods.Put, check: func(t *testing.T, o *corev1.Pod) {
			if o.UID != "u2" || o.DeletionTimestamp != nil || len(o.Annotations) > 0 || len(o.Status.Conditions) != 1 {
				t.Errorf("object = %+v, want nothing of the one before", o)
			}
		}},
		"but waits for finalizers of the one before": {want: is(uid("u2")), have: first(t, web(), finalized), act: pods.Put, waits: true, check: func(t *testing.T, o *corev1.Pod) {
			if o.UID != "u1" || o.Status.Phase != corev1.PodFailed || o.DeletionTimestamp == nil {
				t.Errorf("object = %+v, want the one before, marked as ended", o)
			}
		}},
		"labels, owner, spec and status are ours": {want: is(), have: first(t, web(), func(o *corev1.Pod) {
			o.Labels["app"], o.OwnerReferences, o.Spec.NodeName, o.Spec.Containers, o.Status.HostIP = "db", nil, "n2", nil, ""
			o.Status.Conditions[0].Status = corev1.ConditionFalse
		}, annotated), act: pods.Put, check: func(t *testing.T, o *corev1.Pod) {
			want := object(t, web())
			if !reflect.DeepEqual(o.Labels, want.Labels) || !reflect.DeepEqual(o.OwnerReferences, want.OwnerReferences) ||
				!reflect.DeepEqual(o.Spec, want.Spec) || o.Status.HostIP != "192.0.2.1" || conditionOf(o, corev1.PodReady).Status != corev1.ConditionTrue {
				t.Errorf("object = %+v, want it set again", o)
			}
			if o.Annotations["example.com/note"] != "kept" {
				t.Errorf("annotations = %v, want them kept", o.Annotations)
			}
		}},
		"conditions keep their order and are there once": {want: is(stopped, func(p *runtime.Pod) {
			p.Containers = append(p.Containers, runtime.Container{Name: "side", ID: "c2", State: runtime.Running})
			p.Containers[0].ExitCode = 1
		}), have: first(t, web(), disrupted, func(o *corev1.Pod) { o.Status.Conditions = append(o.Status.Conditions, o.Status.Conditions[1]) }), act: pods.Put, check: func(t *testing.T, o *corev1.Pod) {
			list := o.Status.Conditions
			if len(list) != 2 || list[0].Type != corev1.DisruptionTarget || list[1].Status != corev1.ConditionFalse || !list[1].LastTransitionTime.Time.Equal(now.Truncate(time.Second)) {
				t.Errorf("conditions = %+v, want DisruptionTarget, then Ready, False since now", list)
			}
		}},
		"the creation stays, also with a new sandbox": {want: is(func(p *runtime.Pod) { p.ID, p.CreatedAt = "s2", now }), have: first(t, web()), act: pods.Put, check: func(t *testing.T, o *corev1.Pod) {
			if !o.CreationTimestamp.Time.Equal(began.Truncate(time.Second)) {
				t.Errorf("creation = %v, want %v", o.CreationTimestamp, began)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := pods.Decide(tt.want(), tt.have, now)
			if c.Action != tt.act || c.Waits != tt.waits {
				t.Fatalf("Decide() = %v, waits %t, want %v, waits %t", c.Action, c.Waits, tt.act, tt.waits)
			}
			if tt.check != nil {
				tt.check(t, c.Pod)
			}
			if c.Action == pods.Put { // the same desired object causes no write
				if again := pods.Decide(tt.want(), stored(t, c.Pod), now.Add(time.Minute)); again.Action != pods.Keep {
					t.Errorf("Decide() after the write = %v, want Keep", again.Action)
				}
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestRestartsAreCounted(t *testing.T) {
	docker := func(edits ...func(*runtime.Container)) runtime.Pod {
		return web(func(p *runtime.Pod) {
			p.Sandbox = false
			for _, edit := range edits {
				edit(&p.Containers[0])
			}
		})
	}
	at := func(t time.Time) func(*runtime.Container) { return func(c *runtime.Container) { c.StartedAt = t } }
	counted := func(o *corev1.Pod) {
		o.Status.ContainerStatuses[0].RestartCount = 4
	}
	for name, tt := range map[string]struct {
		want runtime.Pod
		have pods.Stored
		n    int32
	}{
		"the kubelet's count": {web(func(p *runtime.Pod) {
			p.Containers[0].Annotations = map[string]string{"io.kubernetes.container.restartCount": "7"}
		}), pods.Stored{}, 7},
		"a count of nonsense": {web(func(p *runtime.Pod) {
			p.Containers[0].Annotations = map[string]string{"io.kubernetes.container.restartCount": "-7"}
		}), pods.Stored{}, 0},
		"dead containers of the name": {web(func(p *runtime.Pod) {
			dead, latest := p.Containers[0], p.Containers[0]
			dead.State, latest.ID = runtime.Exited, "c2"
			p.Containers = []runtime.Container{dead, latest}
		}), pods.Stored{}, 1},
		"another container":                {web(func(p *runtime.Pod) { p.Containers[0].ID = "c2" }), first(t, web(), counted), 5},
		"the same one":                     {web(), first(t, web(), counted), 4},
		"the same one, started again":      {docker(at(now)), first(t, docker(at(began)), counted), 5},
		"one whose start was not known":    {docker(at(now)), first(t, docker(), counted), 4},
		"one whose start is not known now": {docker(), first(t, docker(at(began)), counted), 4},
		"one that waited for its restart":  {docker(), first(t, docker(func(c *runtime.Container) { c.Restarting = true }), counted), 5},
		"a count that is as high as it can be": {web(func(p *runtime.Pod) { p.Containers[0].ID = "c2" }), first(t, web(), func(o *corev1.Pod) {
			o.Status.ContainerStatuses[0].RestartCount = 1<<31 - 1
		}), 1<<31 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := pods.Decide(object(t, tt.want), tt.have, now)
			o := c.Pod
			if c.Action == pods.Keep {
				o = tt.have.Pod
			}
			if got := o.Status.ContainerStatuses[0].RestartCount; got != tt.n {
				t.Errorf("restartCount = %d, want %d", got, tt.n)
			}
		})
	}
}

func TestAddressesAreKeptWhileTheyAreNotKnown(t *testing.T) {
	networks := func(n runtime.PodNetwork) map[pods.PodKey]runtime.PodNetwork {
		return map[pods.PodKey]runtime.PodNetwork{{Runtime: "containerd", ID: "s1"}: n}
	}
	for name, tt := range map[string]struct {
		before, now runtime.PodNetwork
		known       bool
		nodeIPs     []string
		want        pods.Action
	}{
		"nothing is known after a start":   {before: runtime.PodNetwork{IPs: []string{"10.0.0.7"}}, want: pods.Keep},
		"nor of one in the host's network": {before: runtime.PodNetwork{Host: true}, want: pods.Keep},
		"the host has no address yet":      {before: runtime.PodNetwork{Host: true}, now: runtime.PodNetwork{Host: true}, known: true, want: pods.Keep},
		"the pod has another address":      {before: runtime.PodNetwork{IPs: []string{"10.0.0.7"}}, now: runtime.PodNetwork{IPs: []string{"10.0.0.8"}}, known: true, want: pods.Put},
		"the pod has none":                 {before: runtime.PodNetwork{IPs: []string{"10.0.0.7"}}, known: true, want: pods.Put},
		"the host has another address":     {before: runtime.PodNetwork{Host: true}, now: runtime.PodNetwork{Host: true}, known: true, nodeIPs: []string{"192.0.2.9"}, want: pods.Put},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(web())
			f.Networks = networks(tt.before)
			have := stored(t, pods.Decide(pods.Desire(f).Running["shop/web"], pods.Stored{}, began).Pod)
			f.Networks, f.Node.IPs = nil, tt.nodeIPs
			if tt.known {
				f.Networks = networks(tt.now)
			}
			if c := pods.Decide(pods.Desire(f).Running["shop/web"], have, now); c.Action != tt.want {
				t.Errorf("Decide() = %v of %+v, want %v", c.Action, c.Pod, tt.want)
			}
		})
	}
}

func FuzzStored(f *testing.F) {
	object := pods.Desire(facts(web())).Running["shop/web"]
	c := pods.Decide(object, pods.Stored{}, began)
	for _, edit := range []func(*corev1.Pod){func(*corev1.Pod) {}, deleted, finalized, annotated, disrupted} {
		edit(c.Pod)
		text, err := json.Marshal(c.Pod)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint8(0))
	}
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"web","uid":"u1","deletionTimestamp":"2026-01-02T03:04:05.7+01:00","managedFields":[{}]},"status":{"conditions":[{"type":""},{"type":"Ready"},{"type":"Ready"}],"containerStatuses":[{"name":"main","restartCount":-5}]}}`), uint8(1))
	f.Add([]byte(`null`), uint8(2))
	f.Fuzz(func(t *testing.T, text []byte, what uint8) {
		version := controlplane.PodVersion{Connection: 1, Create: 1, Mod: 1}
		have, err := pods.Read(controlplane.StoredPod{Path: "shop/web", Value: text, Version: version})
		if (err == nil) != (have.Pod != nil) || have.Version != version {
			t.Fatalf("Read() = %+v, %v, want an object or an error, and the version", have, err)
		}
		var want *corev1.Pod
		switch what % 3 {
		case 0:
			want = object
		case 1:
			want = pods.Desire(facts(web(ended(1)))).Ended["shop/web"]
		}
		c := pods.Decide(want, have, now)
		if c.Action != pods.Put {
			return
		}
		next := stored(t, c.Pod)
		if have.Pod != nil && next.Pod.UID == have.Pod.UID {
			if !reflect.DeepEqual(next.Pod.Finalizers, have.Pod.Finalizers) || !reflect.DeepEqual(next.Pod.Annotations, have.Pod.Annotations) ||
				have.Pod.DeletionTimestamp != nil && !next.Pod.DeletionTimestamp.Equal(ptr(metav1.NewTime(have.Pod.DeletionTimestamp.Truncate(time.Second)))) {
				t.Errorf("Decide() = %+v, want what others wrote kept: %+v", next.Pod.ObjectMeta, have.Pod.ObjectMeta)
			}
			if theirs(next.Pod) != theirs(have.Pod) {
				t.Errorf("conditions of others = %s, want %s", theirs(next.Pod), theirs(have.Pod))
			}
		}
		if again := pods.Decide(want, next, now.Add(time.Hour)); again.Action != pods.Keep {
			t.Errorf("Decide() after the write = %v, want Keep", again.Action)
		}
	})
}

// theirs returns the conditions of others.
func theirs(o *corev1.Pod) string {
	var list []corev1.PodCondition
	for _, c := range o.Status.Conditions {
		if c.Type != corev1.PodReady {
			list = append(list, c)
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
