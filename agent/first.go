package agent

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

// first are the services that a shutdown stops before any pod. Where none are named (any
// more), it is still known how those are started again that an earlier process has stopped.
func (a *Agent) first() *shutdown.First {
	return &shutdown.First{
		Names:   a.config().Shutdown.StopFirst,
		Runs:    a.host.manager.UnitRuns,
		Stop:    a.host.manager.StopAlone,
		Start:   a.host.manager.StartUnit,
		Fares:   a.host.manager.UnitFares,
		Adopt:   a.adopt,
		Release: a.shutdown.standIn.Release,
	}
}

// adopt has pods stood in for whose runtime is about to go. One that came a moment ago, as
// while the host boots, may not have been found yet: nobody could find it later.
func (a *Agent) adopt(ctx context.Context, pods []runtime.Pod, before []journal.PodRecord) (signals map[string]string) {
	if a.host.runtimes.Discover(ctx) {
		if list, err := a.host.runtimes.Guarded().Pods(ctx); err == nil {
			pods = list
		}
	}
	told := map[string]string{}
	for _, r := range before {
		maps.Copy(told, r.Signals)
	}
	return a.shutdown.standIn.Adopt(ctx, slices.Concat(pods, remembered(pods, before)), told)
}

// observed tells who has to know which pods run.
func (a *Agent) observed(pods []runtime.Pod) {
	a.shutdown.guard.Observe(pods)
	if len(a.config().Shutdown.StopFirst) > 0 {
		a.shutdown.standIn.Learn(context.Background(), pods) // bounds itself
	}
}

// remembered are the sandboxes of a record whose runtime lists none any more, as an earlier
// process saw them: their containers are found by what runc keeps, their labels are gone with
// their runtime, and what was made of those is on record.
func remembered(listed []runtime.Pod, before []journal.PodRecord) (pods []runtime.Pod) {
	for _, r := range before {
		if !r.Sandbox || slices.ContainsFunc(listed, func(p runtime.Pod) bool { return p.Runtime == r.Runtime }) {
			continue
		}
		labels := map[string]string{runtime.LabelPriority: strconv.Itoa(int(r.Priority))}
		if r.Grace.Duration > 0 {
			labels[runtime.LabelGracePeriod] = r.Grace.Duration.String()
		}
		pods = append(pods, runtime.Pod{
			Runtime: r.Runtime, ID: r.ID, UID: r.UID, Namespace: r.Namespace, Name: r.Name, Ready: true, Sandbox: true, Labels: labels,
		})
	}
	return pods
}
