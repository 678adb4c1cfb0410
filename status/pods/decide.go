package pods

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
)

// Action is what to do with one object.
type Action int

// The actions.
const (
	Keep Action = iota
	Put
	Delete
)

// Change is the action for one object.
type Change struct {
	Action Action
	Pod    *corev1.Pod // with Put
	// Waits means that the host's pod has no object yet, because other clients must first remove
	// the object of an earlier pod.
	Waits bool
}

// Stored is an object as it was read. The zero value is an object that does not exist.
type Stored struct {
	Version controlplane.PodVersion
	Pod     *corev1.Pod // nil if it does not exist, or cannot be read
	text    []byte      // of Pod
	size    int         // estimated memory, in bytes
}

// exists reports whether the object exists.
func (s Stored) exists() bool { return s.Version != controlplane.PodVersion{} }

const (
	// mostStored bounds an object that others may have modified, in bytes: eight times the limit of our own.
	mostStored = 512 << 10
	// valueBytes is the memory of a decoded value. The largest are containers and their statuses.
	valueBytes = 512
)

// read decodes an object. If it fails, only Version is valid.
func read(o controlplane.StoredPod) (Stored, error) {
	s := Stored{Version: o.Version}
	if !s.exists() {
		return s, nil
	}
	if len(o.Value) > mostStored {
		return s, fmt.Errorf("it has %d bytes, more than %d", len(o.Value), mostStored)
	}
	values, _ := controlplane.CountValues(o.Value)
	if values > controlplane.MostHostValues {
		return s, fmt.Errorf("it has more than %d values", controlplane.MostHostValues)
	}
	if err := controlplane.CheckQuantities(o.Value, new(corev1.Pod)); err != nil {
		return s, err
	}
	pod := &corev1.Pod{}
	if err := controlplane.Decode(o.Value, pod); err != nil {
		return s, err
	}
	if pod.APIVersion != "v1" || pod.Kind != "Pod" {
		return s, errors.New("it is no v1 Pod")
	}
	if path := pod.Namespace + "/" + pod.Name; path != o.Path {
		return s, fmt.Errorf("it is named %.100q", path)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return s, err
	}
	s.Pod, s.text, s.size = pod, text, len(o.Value)+len(text)+values*valueBytes
	return s, nil
}

// Decide returns what to do with one object. want is the object of a pod that runs or has ended;
// nil if the host has no such pod.
func Decide(want *corev1.Pod, have Stored, now time.Time) Change {
	switch {
	case want == nil || terminal(want):
		return gone(want, have, now)
	case have.Pod == nil:
		return put(merge(want, &corev1.Pod{}, now), have)
	case have.Pod.UID != want.UID && len(have.Pod.Finalizers) > 0:
		c := gone(nil, have, now)
		c.Waits = true
		return c
	case have.Pod.UID != want.UID:
		return put(merge(want, &corev1.Pod{}, now), have)
	}
	return put(merge(want, have.Pod, now), have)
}

// gone returns what to do with the object of a pod that does not run. If it has finalizers, their
// owners must see that the pod has ended, and then remove the object.
func gone(ended *corev1.Pod, have Stored, now time.Time) Change {
	switch {
	case !have.exists():
		return Change{}
	case have.Pod == nil || len(have.Pod.Finalizers) == 0:
		return Change{Action: Delete}
	}
	next := have.Pod.DeepCopy()
	if ended != nil && ended.UID == have.Pod.UID {
		next = merge(ended, have.Pod, now)
	} else if !terminal(next) {
		next.Status.Phase = corev1.PodFailed
		ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodFailed"}
		next.Status.Conditions = conditions([]corev1.PodCondition{ready}, have.Pod.Status.Conditions, now)
		for i, s := range next.Status.ContainerStatuses {
			if s.State.Terminated == nil {
				next.Status.ContainerStatuses[i].Ready = false
				next.Status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 137, Reason: "ContainerStatusUnknown", ContainerID: s.ContainerID,
				}}
			}
		}
	}
	if next.DeletionTimestamp == nil {
		at := seconds(now)
		next.DeletionTimestamp = &at
	}
	return put(next, have)
}

// put stores an object, unless it is already stored.
func put(next *corev1.Pod, have Stored) Change {
	if have.Pod != nil {
		if text, err := json.Marshal(next); err == nil && bytes.Equal(text, have.text) {
			return Change{}
		}
	}
	return Change{Action: Put, Pod: next}
}

// terminal reports whether a pod has ended and cannot run again.
func terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// merge returns the wanted object with everything that others have written to the stored one.
func merge(want, have *corev1.Pod, now time.Time) *corev1.Pod {
	next := want.DeepCopy()
	meta := have.DeepCopy().ObjectMeta
	meta.Namespace, meta.Name, meta.UID = want.Namespace, want.Name, want.UID
	meta.Labels, meta.OwnerReferences = next.Labels, next.OwnerReferences
	if meta.CreationTimestamp.IsZero() {
		meta.CreationTimestamp = want.CreationTimestamp
	}
	next.ObjectMeta = meta
	if next.Status.HostIP == "" { // not known yet, as after a restart of the agent
		next.Status.HostIP, next.Status.HostIPs = have.Status.HostIP, have.Status.HostIPs
	}
	if next.Status.PodIPs == nil {
		next.Status.PodIP, next.Status.PodIPs = have.Status.PodIP, have.Status.PodIPs
		next.Spec.HostNetwork = next.Spec.HostNetwork || have.Spec.HostNetwork
	}
	next.Status.Conditions = conditions(want.Status.Conditions, have.Status.Conditions, now)
	for i := range next.Status.ContainerStatuses {
		carry(&next.Status.ContainerStatuses[i], have.Status.ContainerStatuses)
	}
	return next
}

// conditions returns our own conditions, and those of others, in the stored order.
func conditions(own, stored []corev1.PodCondition, now time.Time) []corev1.PodCondition {
	own = slices.Clone(own)
	list := make([]corev1.PodCondition, 0, len(stored)+len(own))
	placed := map[corev1.PodConditionType]bool{}
	for _, c := range stored {
		i := slices.IndexFunc(own, func(o corev1.PodCondition) bool { return o.Type == c.Type })
		switch {
		case i < 0:
			list = append(list, *c.DeepCopy())
		case !placed[c.Type]:
			placed[c.Type] = true
			if own[i].LastTransitionTime = c.LastTransitionTime; own[i].Status != c.Status || c.LastTransitionTime.IsZero() {
				own[i].LastTransitionTime = seconds(now)
			}
			list = append(list, own[i])
		}
	}
	for _, o := range own {
		if !placed[o.Type] {
			o.LastTransitionTime = seconds(now)
			list = append(list, o)
		}
	}
	return list
}

// carry copies what a runtime does not remember from the stored status. That is restarts of
// containers that were removed or restarted under the same ID, and the start of a container that
// was not queried yet.
func carry(s *corev1.ContainerStatus, stored []corev1.ContainerStatus) {
	i := slices.IndexFunc(stored, func(o corev1.ContainerStatus) bool { return o.Name == s.Name })
	if i < 0 {
		return
	}
	before := stored[i]
	began, begins := startedAt(before), startedAt(*s)
	if before.ContainerID == s.ContainerID && begins.IsZero() {
		begins = began
		if s.State.Running != nil {
			s.State.Running.StartedAt = began
		}
	}
	count := before.RestartCount
	again := before.State.Waiting != nil && before.State.Waiting.Reason == reasonRestarting && s.State.Running != nil
	if before.ContainerID != s.ContainerID || again || !began.IsZero() && begins.After(began.Time) {
		count += min(1, math.MaxInt32-count)
	}
	s.RestartCount = max(s.RestartCount, count)
}

// startedAt returns the start of a container's latest run, or zero if unknown.
func startedAt(s corev1.ContainerStatus) (at metav1.Time) {
	switch {
	case s.State.Running != nil:
		at = s.State.Running.StartedAt
	case s.State.Terminated != nil:
		at = s.State.Terminated.StartedAt
	}
	return at
}

// named returns a text with the first few of many names.
func named(all []Skipped) string {
	const most = 5
	var parts []string
	for _, l := range all[:min(len(all), most)] {
		parts = append(parts, l.Path+" ("+l.Reason+")")
	}
	if more := len(all) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}
