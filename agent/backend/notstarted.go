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

// notRestarted names the pods that ran before the boot, that have not run since, and that hostler does not start: those
// that the last shutdown, power cut or reboots by hostler ended. One that its runtime does not list any more was
// removed, unless the runtime runs pods once. held are the restarts that are pending soon.
func notRestarted(pods []runtime.Pod, booted time.Time, history journal.History, held []journal.Restart) (names []string) {
	type key struct{ runtime, namespace, name string }
	type state struct {
		ran     bool      // since the boot
		starts  bool      // its runtime or a unit starts it at the boot
		started time.Time // last start of a container
	}
	listed := map[key]state{}
	for _, p := range pods {
		k := key{p.Runtime, p.Namespace, p.Name}
		s := listed[k]
		for _, c := range p.Containers {
			s.ran = s.ran || c.State == runtime.Running || c.StartedAt.After(booted)
			s.starts = s.starts || slices.Contains([]runtime.Restart{runtime.RestartByRuntime, runtime.RestartUnlessStopped, runtime.RestartByUnit}, c.Restart)
			if c.StartedAt.After(s.started) {
				s.started = c.StartedAt
			}
		}
		listed[k] = s
	}
	var stopped []journal.PodRecord
	if r := history.Drained; r != nil && r.Trigger == journal.TriggerReboot && r.StartedAt.Before(booted) {
		stopped = slices.Concat(r.Earlier, r.Pods)
	}
	if r := history.Last; r != nil && r.StartedAt.Before(booted) {
		cut := r.Trigger == journal.TriggerUnknown
		for _, p := range r.Pods {
			// After a power cut, runtimes and units start theirs; notStarted has those that fail.
			if !cut || !listed[key{p.Runtime, p.Namespace, p.Name}].starts {
				stopped = append(stopped, p)
			}
		}
	}
	for _, p := range stopped {
		s, there := listed[key{p.Runtime, p.Namespace, p.Name}]
		ended := p.Outcome == journal.Left || !p.StartedAt.IsZero() && (p.Outcome == journal.Stopped || p.Outcome == journal.Killed)
		since := !p.StartedAt.IsZero() && s.started.After(p.StartedAt)
		hostlers := slices.ContainsFunc(slices.Concat(history.Restarts, held), func(r journal.Restart) bool {
			return r.Runtime == p.Runtime && r.Pod == p.ID && r.Outcome != journal.LeftStopped
		})
		if ended && !hostlers && !s.ran && !since && (there || p.Once) {
			names = append(names, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
