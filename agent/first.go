package agent

import (
	"context"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/orphans"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
)

// first are the services that a shutdown stops before any pod.
func (a *Agent) first() shutdown.First {
	return shutdown.First{Names: a.config().Shutdown.StopFirst, Services: services{a.host.manager, a.shutdown.orphanStopper}}
}

// services are systemd services that are stopped before the pods, because they run container
// runtimes. They are started again if the host does not go down.
type services struct {
	*systemd.Manager
	*orphans.Stopper // stops pods whose runtime has stopped
}

// observed passes the running pods to the guard, and to the Stopper if it may be needed.
func (a *Agent) observed(pods []runtime.Pod) {
	a.shutdown.guard.Observe(pods)
	if len(a.config().Shutdown.StopFirst) > 0 {
		a.shutdown.orphanStopper.Learn(context.Background(), pods) // bounds itself
	}
}
