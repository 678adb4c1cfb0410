package pods

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
)

// Limits of one host's objects. They bound what a host adds to the store and to the memory of its
// watchers. A Node has 110 pods by default, and an object takes a few kB.
const (
	MostPods  = 500
	MostBytes = 1 << 20
	// mostObject bounds one object, in bytes. One of 60 containers fits.
	mostObject = 64 << 10
	// mostLabels bounds the labels of one object, in bytes, so that old pods with large labels leave
	// space for new pods of others.
	mostLabels = 4 << 10
)

// tolerationSeconds is the value of Kubernetes' admission plugin DefaultTolerationSeconds.
const tolerationSeconds = 300

// reasonRestarting is the reason of a container that waits for its runtime to start it again.
const reasonRestarting = "Restarting"

// annotationRestartCount contains a kubelet's count of a container's restarts.
const annotationRestartCount = "io.kubernetes.container.restartCount"

// Facts are what objects are built from.
type Facts struct {
	Node NodeFacts
	Pods []runtime.Pod // all pods of the host, including those that have ended
	// Networks are the known networks of pods.
	Networks map[PodKey]runtime.PodNetwork
}

// PodKey identifies a pod of this host.
type PodKey struct{ Runtime, ID string }

// NodeFacts describe the stored Node of this host.
type NodeFacts struct {
	Name string
	UID  types.UID
	IPs  []string // InternalIPs
}

// Desired are the objects that the store should have.
type Desired struct {
	// Running are the objects of running pods, by path.
	Running map[string]*corev1.Pod
	// Ended are the objects of pods that have ended but that the runtime still lists, by path.
	Ended map[string]*corev1.Pod
	// Kept are paths of running pods that get no object; stored objects stay.
	Kept    map[string]bool
	Skipped []Skipped
}

// Skipped is a running pod without an object of its own.
type Skipped struct{ Path, Reason string }

// Desire returns the objects that the store should have. Older pods come first, so that a new pod
// never replaces the object of a running one.
func Desire(f Facts) Desired {
	d := Desired{Running: map[string]*corev1.Pod{}, Ended: map[string]*corev1.Pod{}, Kept: map[string]bool{}}
	pods := slices.SortedFunc(slices.Values(f.Pods), func(a, b runtime.Pod) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Runtime, b.Runtime), cmp.Compare(a.ID, b.ID))
	})
	size := 0
	for _, p := range pods {
		object := newObject(f, p)
		path := object.Namespace + "/" + object.Name
		if object.Status.Phase != corev1.PodRunning {
			d.Ended[path] = object // the latest pod of that path
			continue
		}
		text, err := json.Marshal(object)
		values, _ := controlplane.CountValues(text)
		reason := ""
		switch {
		case err != nil:
			reason = err.Error()
		case d.Running[path] != nil:
			reason = "an older pod has this name"
		case len(d.Running) >= MostPods:
			reason = "the host has more than " + strconv.Itoa(MostPods) + " pods"
		case len(text) > mostObject:
			reason = "its object has more than " + strconv.Itoa(mostObject>>10) + " KiB"
		case values > controlplane.MostHostValues/2:
			reason = "its object has more than " + strconv.Itoa(controlplane.MostHostValues/2) + " values"
		case size+len(text) > MostBytes:
			reason = "the objects of the host have more than 1 MiB"
		default:
			d.Running[path] = object
			size += len(text)
			continue
		}
		d.Kept[path] = true
		d.Skipped = append(d.Skipped, Skipped{path, reason})
	}
	return d
}

// newObject returns the object of a pod, without the fields that are only in the stored one.
func newObject(f Facts, p runtime.Pod) *corev1.Pod {
	namespace, name := names(p)
	labels, _ := sanitize.Labels(p.Labels, mostLabels)
	object := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: uidOf(p),
			CreationTimestamp: seconds(p.CreatedAt), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: f.Node.Name, UID: f.Node.UID}},
		},
		Spec: corev1.PodSpec{NodeName: f.Node.Name, Tolerations: tolerations()},
	}
	s := &object.Status
	if len(f.Node.IPs) > 0 {
		s.HostIP = f.Node.IPs[0]
		for _, ip := range f.Node.IPs {
			s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
		}
	}
	if !p.CreatedAt.IsZero() {
		start := seconds(p.CreatedAt)
		s.StartTime = &start
	}
	for _, c := range containers(p) {
		object.Spec.Containers = append(object.Spec.Containers, corev1.Container{Name: c.name, Image: c.latest.Image})
		s.ContainerStatuses = append(s.ContainerStatuses, c.status(p.Sandbox))
	}
	s.Phase = phase(p)
	s.Conditions = []corev1.PodCondition{ready(p, s.Phase, s.ContainerStatuses)}
	network, known := f.Networks[PodKey{p.Runtime, p.ID}]
	if network.Host { // as Kubernetes does
		object.Spec.HostNetwork, network.IPs, known = true, f.Node.IPs, len(f.Node.IPs) > 0
	}
	if known {
		s.PodIPs = []corev1.PodIP{} // with nil, the stored ones would be kept
	}
	for _, ip := range network.IPs {
		s.PodIP = cmp.Or(s.PodIP, ip)
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
	return object
}

// tolerations returns the two that Kubernetes adds to each pod.
func tolerations() []corev1.Toleration {
	var list []corev1.Toleration
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		after := int64(tolerationSeconds)
		list = append(list, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &after})
	}
	return list
}

// phase returns Running while a container runs, else Failed unless all are known to have succeeded.
func phase(p runtime.Pod) corev1.PodPhase {
	if slices.ContainsFunc(p.Containers, func(c runtime.Container) bool { return c.State == runtime.Running }) {
		return corev1.PodRunning
	}
	for _, c := range containers(p) {
		if !completed(c.latest) {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}

// completed reports whether a container has ended with exit code 0.
func completed(c runtime.Container) bool {
	return c.State == runtime.Exited && !c.FinishedAt.IsZero() && c.ExitCode == 0
}

// ready returns the condition Ready. Completed containers, such as init containers, do not count.
func ready(p runtime.Pod, phase corev1.PodPhase, statuses []corev1.ContainerStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	var not []string
	for _, s := range statuses {
		if !s.Ready && (s.State.Terminated == nil || s.State.Terminated.ExitCode != 0) {
			not = append(not, s.Name)
		}
	}
	switch {
	case phase == corev1.PodSucceeded:
		c.Reason = "PodCompleted"
	case phase == corev1.PodFailed:
		c.Reason = "PodFailed"
	case p.Sandbox && !p.Ready:
		c.Reason, c.Message = "SandboxNotReady", "the sandbox of the pod does not run"
	case len(not) > 0:
		c.Reason, c.Message = "ContainersNotReady", "containers with unready status: ["+strings.Join(not, " ")+"]"
	default:
		c.Status = corev1.ConditionTrue
	}
	return c
}

// instances are the containers of a pod with the same name.
type instances struct {
	name   string
	latest runtime.Container
	older  int
}

// containers returns the containers of a pod by name.
func containers(p runtime.Pod) []instances {
	byName := map[string]instances{}
	for _, c := range p.Containers { // sorted by creation
		name := cmp.Or(c.Name, c.ID)
		i, found := byName[name]
		if found {
			i.older++
		}
		i.name, i.latest = name, c
		byName[name] = i
	}
	list := make([]instances, 0, len(byName))
	for _, i := range byName {
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b instances) int { return strings.Compare(a.name, b.name) })
	return list
}

// status returns the status of the latest container. In a sandbox, a container starts once, soon
// after its creation.
func (i instances) status(sandbox bool) corev1.ContainerStatus {
	c := i.latest
	started := c.StartedAt
	if started.IsZero() && sandbox {
		started = c.CreatedAt
	}
	s := corev1.ContainerStatus{
		Name: i.name, Image: c.Image, ImageID: c.ImageID, ContainerID: c.Runtime + "://" + c.ID,
		RestartCount: int32(min(i.older, math.MaxInt32)),
	}
	if count, counted := restarts(c); counted {
		s.RestartCount = count
	}
	switch {
	case c.State == runtime.Running && c.Restarting:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reasonRestarting}
	case c.State == runtime.Running:
		s.Ready = true
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: seconds(started)}
	case c.State == runtime.Exited:
		t := &corev1.ContainerStateTerminated{
			ExitCode: c.ExitCode, Reason: "Error", ContainerID: s.ContainerID,
			StartedAt: seconds(started), FinishedAt: seconds(c.FinishedAt),
		}
		switch {
		case c.FinishedAt.IsZero(): // as Kubernetes does for containers whose end was not seen
			t.ExitCode, t.Reason = 137, "ContainerStatusUnknown"
		case c.ExitCode == 0:
			t.Reason = "Completed"
		}
		s.State.Terminated = t
	case c.State == runtime.Created:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "Unknown"}
	}
	return s
}

// restarts returns the number of restarts that a kubelet recorded, and false if there is none.
func restarts(c runtime.Container) (int32, bool) {
	count, err := strconv.ParseUint(c.Annotations[annotationRestartCount], 10, 31)
	return int32(count), err == nil
}

// seconds returns a time in the precision of objects.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}
