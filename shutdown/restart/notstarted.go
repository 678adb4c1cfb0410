package restart

import (
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
)

// bootSettled is how long after a boot runtimes may still be starting containers.
const bootSettled = 2 * time.Minute

// NotStarted returns the containers that should run by their restart policy, but have not run since
// the boot. A runtime starts all containers with policy "always". Other containers count only if
// nothing starts them again. That is so if their runtime did not see them end, as in a power
// failure, or if a manual drain before the boot stopped them. Until bootSettled, it returns none.
func NotStarted(pods []runtime.Pod, drain *journal.Record, booted, now time.Time) (list []runtime.Container) {
	if now.Sub(booted) < bootSettled {
		return nil
	}
	for _, p := range pods {
		for _, c := range p.Containers {
			ran := c.State != runtime.Unknown && c.State != runtime.Running && !c.StartedAt.IsZero() && c.StartedAt.Before(booted)
			endUnseen := c.FinishedAt.Before(c.StartedAt) || !c.FinishedAt.Before(booted) // dockerd records its own start as the end
			if ran && (c.Restart == runtime.RestartByRuntime || c.Restart == runtime.RestartUnlessStopped && (endUnseen || drained(drain, p, c))) {
				list = append(list, c)
			}
		}
	}
	return list
}

// drained reports whether a drain, or an earlier one of the same maintenance period, stopped a
// container that was not started since.
func drained(drain *journal.Record, p runtime.Pod, c runtime.Container) bool {
	if drain == nil {
		return false
	}
	stopped := func(r journal.PodRecord) bool {
		startedSince := !r.FinishedAt.IsZero() && c.StartedAt.After(r.FinishedAt)
		return r.Runtime == p.Runtime && r.ID == p.ID && !r.StartedAt.IsZero() && !startedSince
	}
	return !c.FinishedAt.Before(drain.StartedAt) && slices.ContainsFunc(drain.Pods, stopped) ||
		slices.ContainsFunc(drain.Earlier, func(r journal.PodRecord) bool { return stopped(r) && !c.FinishedAt.Before(r.StartedAt) })
}
