package restart

import (
	"time"

	"hostler.io/hostler/runtime"
)

// bootSettled is how long after a boot the runtimes may still be starting containers.
const bootSettled = 2 * time.Minute

// NotStarted returns the containers that should run by their restart policy, and that have not run
// since the host booted. A runtime starts the containers with policy "always" whoever stopped them.
// Other containers count only if their runtime did not see them end, as in a power cut. While the
// boot settles, there are none.
func NotStarted(pods []runtime.Pod, booted, now time.Time) (list []runtime.Container) {
	if now.Sub(booted) < bootSettled {
		return nil
	}
	for _, p := range pods {
		for _, c := range p.Containers {
			ran := c.State != runtime.Unknown && c.State != runtime.Running && !c.StartedAt.IsZero() && c.StartedAt.Before(booted)
			endUnseen := c.FinishedAt.Before(c.StartedAt) || !c.FinishedAt.Before(booted) // dockerd notes its own start as the end
			if ran && (c.Restart == runtime.RestartByRuntime || c.Restart == runtime.RestartUnlessStopped && endUnseen) {
				list = append(list, c)
			}
		}
	}
	return list
}
