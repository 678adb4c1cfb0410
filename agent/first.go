package agent

import (
	"context"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/orphans"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
)

// first are the services that a shutdown stops before any pod.
func (a *Agent) first() shutdown.First {
	return shutdown.First{Names: a.config().Shutdown.StopFirst, Services: services{a.host.manager, a.shutdown.standIn}}
}

// services are those of systemd, some of which have container runtimes run. They are stopped
// before the pods, and started again if the host does not go down.
type services struct {
	manager *systemd.Manager
	standIn *orphans.StandIn // stops pods whose runtime has stopped
}

// Runs reports whether a service runs, or is about to.
func (s services) Runs(ctx context.Context, name string) (bool, error) {
	return s.manager.UnitRuns(ctx, name)
}

// Stop stops a service alone, and reports whether it ran.
func (s services) Stop(ctx context.Context, name string) (ran bool, err error) {
	return s.manager.StopAlone(ctx, name)
}

// Adopt has pods stood in for whose runtime is about to stop.
func (s services) Adopt(ctx context.Context, listed, recorded []runtime.Pod, signals map[string]string) map[string]string {
	return s.standIn.Adopt(ctx, listed, recorded, signals)
}

// Start begins to start a service or another unit.
func (s services) Start(ctx context.Context, name string) error {
	return s.manager.StartUnit(ctx, name)
}

// Fares tells what became of a unit that was started at a time.
func (s services) Fares(ctx context.Context, name string, since time.Time) (starting bool, failed string, err error) {
	return s.manager.UnitFares(ctx, name, since)
}

// Release ends the standing in: runtimes are about to start.
func (s services) Release() { s.standIn.Release() }

// observed passes the pods that run to the guard, and to the stand-in if it may be needed.
func (a *Agent) observed(pods []runtime.Pod) {
	a.shutdown.guard.Observe(pods)
	if len(a.config().Shutdown.StopFirst) > 0 {
		a.shutdown.standIn.Learn(context.Background(), pods) // bounds itself
	}
}
