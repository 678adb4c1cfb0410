package backend

import (
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/restart"
)

// notStarted names the containers that should run but were not started after the boot. Containers
// that a shutdown stopped and whose start is pending or failed are reported elsewhere.
func notStarted(pods []runtime.Pod, booted time.Time, history journal.History) (names []string) {
	for _, c := range restart.NotStarted(pods, history.Drained, booted, time.Now()) {
		if !slices.ContainsFunc(history.Restarts, func(r journal.Restart) bool {
			return r.Runtime == c.Runtime && r.ID == c.ID && (r.Outcome == "" || r.Outcome == journal.RestartFailed)
		}) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

// notRestarted names the pods that the last reboot by hostler stopped, that have not run since, and that hostler
// does not start. One that its runtime does not list any more was removed, unless the runtime runs pods once.
func notRestarted(pods []runtime.Pod, booted time.Time, history journal.History) (names []string) {
	if d := history.Drained; d == nil || d.Trigger != journal.TriggerReboot || !history.DrainedBefore() {
		return nil
	}
	type key struct{ runtime, namespace, name string }
	listed, ran := map[key]bool{}, map[key]bool{}
	for _, p := range pods {
		k := key{p.Runtime, p.Namespace, p.Name}
		listed[k] = true
		ran[k] = ran[k] || slices.ContainsFunc(p.Containers, func(c runtime.Container) bool { return c.State == runtime.Running || c.StartedAt.After(booted) })
	}
	for _, p := range slices.Concat(history.Drained.Pods, history.Last.Pods) {
		k := key{p.Runtime, p.Namespace, p.Name}
		stopped := p.Outcome == journal.Stopped || p.Outcome == journal.Killed || p.Outcome == journal.Left
		hostlers := slices.ContainsFunc(history.Restarts, func(r journal.Restart) bool {
			return r.Runtime == p.Runtime && r.Pod == p.ID && r.Outcome != journal.LeftStopped
		})
		if stopped && !hostlers && !ran[k] && (listed[k] || p.Once) {
			names = append(names, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
