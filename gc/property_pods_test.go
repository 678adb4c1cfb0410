package gc_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// generateLogs adds logs of existing and of removed pods, and links.
func generateLogs(r *rand.Rand, f *gc.Facts, pods int) {
	if r.IntN(4) == 0 {
		f.LogsUnsure = "a runtime does not answer"
	}
	for i := range 2 * pods {
		log := gc.LogFact{
			Path: fmt.Sprintf("/var/log/pods/default_p%d_gone%d", i, i), Namespace: "default", Pod: fmt.Sprintf("p%d", i),
			UID: fmt.Sprintf("gone%d", i), ModifiedAt: ago(time.Duration(r.IntN(8*60)) * time.Minute),
		}
		if i < pods && r.IntN(2) == 0 {
			log.UID = f.Pods[i].UID
		}
		if r.IntN(6) == 0 {
			log.Foreign = "it contains passwd, which is not a log"
		}
		if r.IntN(3) == 0 {
			log.Link, log.Foreign, log.ContainerID = true, "", fmt.Sprintf("c%d-0", i)
		}
		f.Logs = append(f.Logs, log)
	}
}

func removedPods(d gc.Decisions) []string {
	removed := []string{}
	for _, p := range d.Pods {
		if p.Action == gc.Remove {
			removed = append(removed, p.ID)
		}
	}
	return removed
}

// keptPod reports whether a pod must be kept completely.
func keptPod(f gc.Facts, pod runtime.Pod) bool {
	return pod.Annotations[runtime.LabelKeep] == "true" || f.ProtectedPods[gc.PodKey{Runtime: pod.Runtime, ID: pod.ID}].Reason != ""
}

// settling is how long creating a sandbox or a log may take.
func settling(p gc.Policy) time.Duration {
	return max(p.Containers.MinimumAge, min(p.Containers.AbandonedAge, time.Minute))
}

func checkPods(t *testing.T, f gc.Facts, p gc.Policy, d gc.Decisions) {
	staying := make(map[string]bool)
	for _, c := range d.Containers {
		staying[c.Container.PodID] = staying[c.Container.PodID] || c.Action == gc.Keep
	}
	dead := 0
	for _, pod := range f.Pods {
		if !pod.Sandbox || pod.Ready || pod.Gone {
			continue
		}
		dead++
		patience := max(p.Containers.MinimumAge, p.Containers.AbandonedAge)
		over := !f.Kubelet && !keptPod(f, pod) && now.Sub(pod.CreatedAt) >= patience
		for _, c := range pod.Containers {
			last := c.CreatedAt
			if c.State == runtime.Exited {
				last = c.FinishedAt
			}
			over = over && c.State != runtime.Running && c.Labels[runtime.LabelKeep] == "" &&
				now.Sub(last) >= patience
		}
		if over && staying[pod.ID] {
			t.Errorf("Plan() keeps containers of pod %s, which is over: %+v", pod.ID, pod)
		}
	}
	if len(d.Pods) != dead {
		t.Errorf("Plan() decides on %d pods, want the %d dead ones", len(d.Pods), dead)
	}
	for _, decision := range d.Pods {
		pod := *decision.Pod
		if decision.Action == gc.Keep {
			free := !staying[pod.ID] && !keptPod(f, pod) && !f.Kubelet && now.Sub(pod.CreatedAt) >= settling(p)
			if free && len(pod.Containers) == 0 {
				t.Errorf("Plan() keeps pod %s (%s, %s), want it removed: nothing keeps it", pod.ID, decision.Reason, decision.Detail)
			}
			continue
		}
		newer := slices.ContainsFunc(f.Pods, func(o runtime.Pod) bool {
			return o.UID == pod.UID && (o.CreatedAt.After(pod.CreatedAt) || o.CreatedAt.Equal(pod.CreatedAt) && o.ID > pod.ID)
		})
		switch {
		case pod.Ready || pod.Gone || !pod.Sandbox:
			t.Errorf("Plan() removes pod %s, which is not a dead sandbox: %+v", pod.ID, pod)
		case staying[pod.ID]:
			t.Errorf("Plan() removes pod %s, which has a container that stays", pod.ID)
		case keptPod(f, pod):
			t.Errorf("Plan() removes pod %s, which is to be kept", pod.ID)
		case f.Kubelet && !newer:
			t.Errorf("Plan() removes pod %s, the newest of its UID, beside a kubelet", pod.ID)
		case now.Sub(pod.CreatedAt) < settling(p):
			t.Errorf("Plan() removes pod %s, made %s ago", pod.ID, now.Sub(pod.CreatedAt))
		}
	}
}

func checkLogs(t *testing.T, f gc.Facts, p gc.Policy, d gc.Decisions) {
	for _, l := range d.Logs {
		if l.Action == gc.Keep {
			continue
		}
		known := slices.ContainsFunc(f.Pods, func(pod runtime.Pod) bool {
			if l.Log.Link {
				return slices.ContainsFunc(pod.Containers, func(c runtime.Container) bool { return c.ID == l.Log.ContainerID })
			}
			return pod.UID == l.UID
		})
		switch {
		case known:
			t.Errorf("Plan() removes log %s of a pod or container that is there", l.Path)
		case f.LogsUnsure != "" || l.Log.Foreign != "" || f.ProtectedLogs[l.UID].Reason != "":
			t.Errorf("Plan() removes log %s, want it kept: %+v", l.Path, l.Log)
		case now.Sub(l.ModifiedAt) < settling(p):
			t.Errorf("Plan() removes log %s, written %s ago", l.Path, now.Sub(l.ModifiedAt))
		}
	}
}
