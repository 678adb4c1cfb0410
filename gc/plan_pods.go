package gc

import (
	"cmp"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// settlingLimit is the maximum of settling.
const settlingLimit = time.Minute

// settling is how long creating an object may take. At first, a new sandbox is listed as not ready,
// and the log folder of a new pod exists without a pod.
func (p ContainerPolicy) settling() time.Duration {
	return max(p.MinimumAge, min(p.AbandonedAge, settlingLimit))
}

// abandoned reports whether a pod is finished: its sandbox is dead, no container runs in it, and no
// kubelet creates the sandbox again.
func abandoned(f *Facts, pod *runtime.Pod) bool {
	return isDead(pod) && !f.Kubelet && !slices.ContainsFunc(pod.Containers, func(c runtime.Container) bool { return c.State == runtime.Running })
}

// isDead reports whether the pod has a sandbox that is dead.
func isDead(pod *runtime.Pod) bool { return pod.Sandbox && !pod.Ready && !pod.Gone }

// lastChange is the latest known time of a change in the pod. No runtime reports when a sandbox
// died.
func lastChange(pod *runtime.Pod) time.Time {
	last := pod.CreatedAt
	for i := range pod.Containers {
		for _, t := range []time.Time{pod.Containers[i].CreatedAt, pod.Containers[i].FinishedAt} {
			if t.After(last) {
				last = t
			}
		}
	}
	return last
}

// planPods decides on every dead sandbox. A sandbox is removed if all its containers are, or if it
// has none.
func planPods(f *Facts, p ContainerPolicy, now time.Time, o Options, containers []ContainerDecision) []PodDecision {
	staying := make(map[PodKey]*ContainerDecision)
	for i := range containers {
		if d := &containers[i]; d.Action == Keep {
			key := PodKey{d.Runtime, d.Container.PodID}
			// A running container is the best reason.
			if staying[key] == nil || d.Reason == Running {
				staying[key] = d
			}
		}
	}
	newest := make(map[PodKey]*runtime.Pod) // by UID
	for i := range f.Pods {
		pod := &f.Pods[i]
		key := PodKey{pod.Runtime, pod.UID}
		if last := newest[key]; last == nil || comparePods(last, pod) < 0 {
			newest[key] = pod
		}
	}
	decisions := []PodDecision{}
	for i := range f.Pods {
		pod := &f.Pods[i]
		if !isDead(pod) {
			continue
		}
		d := PodDecision{
			ID: pod.ID, UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace, CreatedAt: pod.CreatedAt,
			Action: Keep, Runtime: pod.Runtime, Pod: pod,
		}
		d.Reason, d.Detail = protectedPod(f, pod, o)
		switch stays := staying[PodKey{pod.Runtime, pod.ID}]; {
		case d.Reason != "":
		case stays != nil:
			d.Reason, d.Detail = InUse, "container "+stays.Name+" is kept ("+string(stays.Reason)+")"
		case f.Kubelet && newest[PodKey{pod.Runtime, pod.UID}] == pod:
			d.Reason, d.Detail = Newest, "the kubelet may restart the pod"
		case age(now, lastChange(pod)) < p.settling():
			d.Reason, d.Detail = TooYoung, untilRemoval(p.settling()-age(now, lastChange(pod)))
		default:
			d.Action, d.Reason = Remove, PodDead
		}
		decisions = append(decisions, d)
	}
	slices.SortFunc(decisions, func(a, b PodDecision) int {
		return cmp.Or(compareActions(a.Action, b.Action), comparePods(a.Pod, b.Pod))
	})
	return decisions
}

// comparePods sorts the oldest first.
func comparePods(a, b *runtime.Pod) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Runtime, b.Runtime))
}

// compareActions sorts removals first.
func compareActions(a, b Action) int {
	switch {
	case a == b:
		return 0
	case a == Remove:
		return -1
	}
	return 1
}
