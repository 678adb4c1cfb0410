package gc

import (
	"cmp"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// planLogs decides on every log folder and link of pods and containers that no runtime lists. Logs
// of other pods are kept and are not in the result.
func planLogs(f *Facts, p ContainerPolicy, now time.Time, o Options) []LogDecision {
	pods := make(map[string]bool)
	containers := make(map[string]bool)
	for i := range f.Pods {
		pods[f.Pods[i].UID] = true
		for j := range f.Pods[i].Containers {
			c := &f.Pods[i].Containers[j]
			containers[c.ID] = true
			// The pod may have been removed, but its containers still have its UID.
			pods[c.Labels[labelPodUID]] = true
		}
	}
	unsure := f.LogsUnsure
	for i := range f.Pods {
		if pod := &f.Pods[i]; pod.Sandbox && unsure == "" && slices.Contains(o.LeaveAlone, pod.Runtime) {
			unsure = "it may belong to " + pod.Runtime + ", whose objects are removed on request only"
		}
	}
	patience := p.patience()
	if o.AllUnused {
		patience = p.settling()
	}
	decisions := []LogDecision{}
	for i := range f.Logs {
		log := &f.Logs[i]
		if !log.Link && log.Foreign == "" && pods[log.UID] || log.Link && containers[log.ContainerID] {
			continue
		}
		d := LogDecision{
			Path: log.Path, Pod: podTitle(&runtime.Pod{Namespace: log.Namespace, Name: log.Pod, ID: log.ContainerID}), UID: log.UID,
			ModifiedAt: log.ModifiedAt, SizeBytes: log.SizeBytes, Action: Keep, Log: log,
		}
		kept := f.ProtectedLogs[log.UID]
		switch {
		case log.Foreign != "":
			d.Reason, d.Detail = NotManaged, log.Foreign
		case kept.Reason != "":
			d.Reason, d.Detail = kept.Reason, kept.Detail
		case unsure != "":
			d.Reason, d.Detail = NotManaged, unsure
		case age(now, log.ModifiedAt) < patience:
			d.Reason, d.Detail = TooYoung, untilRemoval(patience-age(now, log.ModifiedAt))
		case log.Link:
			d.Action, d.Reason = Remove, Dangling
		default:
			d.Action, d.Reason = Remove, PodGone
		}
		decisions = append(decisions, d)
	}
	slices.SortFunc(decisions, func(a, b LogDecision) int {
		return cmp.Or(compareActions(a.Action, b.Action), a.ModifiedAt.Compare(b.ModifiedAt), cmp.Compare(a.Path, b.Path))
	})
	return decisions
}

// labelPodUID is a label that kubelet sets on every container.
const labelPodUID = "io.kubernetes.pod.uid"
