package agent

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/agent/selfdrain"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/orphans"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/restart"
	"hostler.io/hostler/status/conditions"
	"hostler.io/hostler/status/report"
)

// stopping has the parts that stop pods at a shutdown, and start them again.
type stopping struct {
	guard         *shutdown.Guard
	guardLoop     *loop.Loop
	orphanStopper *orphans.Stopper    // stops pods whose runtime stops before them
	pods          *discovery.PodWatch // lists pods for the guard
	restarts      *restart.Restarter
	wake          loop.Signal     // wakes the restarter
	board         *shutdown.Board // has the guard's status
	ending        atomic.Bool     // a signal has ended the agent
	drainer       *maintenance.Drainer
	selfDrainer   *selfdrain.Controller
	rebooter      *reboot.Controller // nil unless reboots are enabled
	rebootEnd     *reboot.Controller // ends what is left of a reboot; nil if reboots are enabled
	rebootChecks  *conditions.Runner // checks that may request a reboot
}

func (a *Agent) buildShutdown(cfg config.Config) (err error) {
	runtimes, policies := a.host.runtimes, a.settings.Policies()
	s := &a.shutdown
	s.orphanStopper, err = orphans.New(orphans.Options{
		Runtime: runtimes.Guarded(),
		Member: func(name string) bool {
			return slices.ContainsFunc(runtimes.Set().Members(), func(m runtime.Runtime) bool { return m.Name() == name })
		},
		StopSignal: runtimes.Set().StopSignal,
		Discover:   runtimes.Discover,
		Log:        a.log,
	})
	if err != nil {
		return err
	}
	s.guardLoop = loop.New("shutdown-guard", time.Minute, nil)
	s.guard, err = shutdown.New(shutdown.Options{
		Phases:    policies.Phases,
		Rules:     policies.Rules,
		Runtime:   s.orphanStopper,
		Living:    func() (map[string]bool, error) { return local.Living("/proc") },
		Board:     s.board,
		Journal:   a.kept.journal,
		Log:       a.log,
		Inhibitor: a.host.logind,
		First:     a.first(),
		Starter:   services{a.host.manager, s.orphanStopper},
		Reporter:  report.ShutdownReporter{Reporter: a.reports.reporter, BootEvents: a.reports.bootEvents, Flush: a.kept.flush},
		Delegated: a.delegated,
		Notify:    a.shutdownChanged,
		Settled:   s.wake.Send,
		Heartbeat: s.guardLoop.Heartbeat,
	})
	if err != nil {
		return err
	}
	s.pods = discovery.NewPodWatch(s.orphanStopper.Pods, a.observed, s.guard.Change)
	s.restarts = restart.New(a.restartOptions(cfg))
	return nil
}

// restartOptions returns the options for starting the containers that a shutdown stopped.
func (a *Agent) restartOptions(cfg config.Config) restart.Options {
	return restart.Options{
		Set:          a.host.runtimes.Set(),
		Journal:      a.kept.journal,
		Log:          a.log,
		Never:        cfg.Shutdown.RestartAfterBoot == config.RestartNever,
		Held:         a.restartsHeld,
		Report:       a.reportRestart,
		Wake:         a.shutdown.wake,
		PendingUnits: a.pendingUnits,
	}
}

// pendingUnits returns the units that systemd has yet to start in this boot.
func (a *Agent) pendingUnits(ctx context.Context, units ...string) ([]restart.PendingUnit, error) {
	list, err := a.host.manager.PendingUnits(ctx, units...)
	pending := make([]restart.PendingUnit, len(list))
	for i, c := range list {
		pending[i] = restart.PendingUnit(c)
	}
	return pending, err
}

// restartsHeld reports whether no container may be started now: the host shuts down, a manual drain
// runs, or the agent ends.
func (a *Agent) restartsHeld() bool {
	g := a.shutdown.guard.Status()
	return a.shutdown.ending.Load() || a.kept.journal.Current() != nil || g.ManualDrain != nil ||
		g.State == shutdown.Draining || g.State == shutdown.Released
}

// reportRestart records an Event about a restart.
func (a *Agent) reportRestart(r journal.Restart) {
	node := controlplane.NodeReference(a.node())
	if r.Outcome == journal.RestartFailed {
		a.plane.recorder.Record(node, corev1.EventTypeWarning, "ContainerStaysDown", fmt.Sprintf("cannot restart container %s of %s after the %s: %s", r.Name, r.Runtime, r.By(), r.Reason))
		return
	}
	a.plane.recorder.Record(node, corev1.EventTypeNormal, "ContainerStartedAgain", fmt.Sprintf("restarted container %s of %s after the %s", r.Name, r.Runtime, r.By()))
}
