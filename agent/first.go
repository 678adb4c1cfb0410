package agent

import (
	"context"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/orphans"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
)

// first returns the services that a shutdown stops before any pod.
func (a *Agent) first() shutdown.First {
	return shutdown.First{Names: a.config().Shutdown.StopFirst, Services: services{a.host.manager, a.shutdown.orphanStopper}}
}

// services are systemd services that are stopped before the pods, because they run container
// runtimes. They are started again if the host does not go down.
type services struct {
	*systemd.Manager
	*orphans.Stopper // stops pods whose runtime has stopped
}

// observed passes the pods to the guard and to the other parts that need them.
func (a *Agent) observed(pods []runtime.Pod) {
	a.shutdown.guard.Observe(pods)
	a.shutdown.restarts.Observe(pods)
	if a.reports.pods != nil {
		a.reports.pods.Observe(pods)
	}
	if len(a.config().Shutdown.StopFirst) > 0 {
		a.shutdown.orphanStopper.Learn(context.Background(), pods) // Learn has its own time limit
	}
}
