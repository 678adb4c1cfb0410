package agent

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/report"
)

// run is the function of a loop.
type run = func(context.Context, *loop.Loop) error

// fillLoops sets the functions of the loops, in the order of `hostler status`. The loops themselves
// exist earlier, because other parts refer to them.
func (a *Agent) fillLoops(cfg config.Config) {
	newLoop := func(name string, patience time.Duration, do run) *loop.Loop {
		return loop.New(name, patience, nil).Do(do)
	}
	statusPatience := 3*time.Duration(cfg.Status.UpdateInterval) + gather.ProbeTimeout + report.WriteTimeout
	metrics := newLoop("metrics", 0, a.serveMetrics)
	a.serving.network = loop.Set{metrics}
	a.loops = loop.Set{
		a.plane.lease.Do(a.whileMine(owner.Lease, whileOpen(a.plane.member, whileOpen(a.plane.existence, plain(a.plane.keeper.Run))))),
		newLoop("status", statusPatience, func(ctx context.Context, l *loop.Loop) error { return a.reports.reporter.Run(ctx, l.Heartbeat) }),
		a.gc.imageLoop.Do(a.whileMine(owner.ImageGC, plain(a.gc.images.Run))),
		a.gc.deadLoop.Do(a.whileMine(owner.ContainerGC, plain(a.gc.dead.Run))),
		a.gc.trackerLoop.Do(plain(a.gc.tracker.Run)),
		a.shutdown.guardLoop.Do(plain(a.shutdown.guard.Run)),
		newLoop("runtimes", 2*time.Minute, func(ctx context.Context, l *loop.Loop) error {
			return a.host.runtimes.Run(ctx, l.Heartbeat, a.runtimesChanged)
		}),
		loop.New("runtime-events", 0, func(ctx context.Context) error { return a.host.runtimes.Watch(ctx, a.notice, a.setBlind) }),
		loop.New("pods", 0, a.shutdown.pods.Run),
		loop.New("restart", 0, a.shutdown.restarts.Run),
		loop.New("self-drain", 0, a.shutdown.selfDrainer.Run),
		loop.New("network", 0, func(ctx context.Context) error { return a.host.network.Run(ctx, a.changed.Send) }),
		newLoop("conditions", conditionsPatience, func(ctx context.Context, l *loop.Loop) error {
			return a.host.checks.Run(ctx, func() { l.Heartbeat(nil) })
		}),
		loop.New("events", 0, a.plane.recorder.Run),
		loop.New("state", 0, a.kept.folder.Run),
		newLoop("owners", 3*time.Minute, a.searchOwners),
		metrics,
	}
	// The remaining loops depend on the configuration and the control plane.
	add := func(name string, do run) { a.loops = append(a.loops, newLoop(name, 0, do)) }
	if cfg.API.Listen != "" {
		add("api", a.serveNetwork)
		a.serving.network = loop.Set{a.loops[len(a.loops)-1], metrics}
	}
	if pacer, able := a.plane.Client.(controlplane.Pacer); able {
		add("lease-pace", a.whileMine(owner.Lease, func(ctx context.Context, l *loop.Loop) error {
			return a.plane.pacing.Follow(ctx, pacer, l.Heartbeat)
		}))
	}
	if a.reports.pods != nil {
		keep := a.reports.pods.Run
		if !cfg.Status.Pods {
			keep = a.reports.pods.RunRemoval
		}
		a.loops = append(a.loops, a.reports.podsLoop.Do(a.whileMine(owner.Node, whileOpen(a.plane.member, plain(keep)))))
	}
	if s := &a.shutdown; s.rebooter != nil {
		add("reboot", plain(s.rebooter.Run))
		a.loops = append(a.loops, newLoop("reboot-checks", conditionsPatience, func(ctx context.Context, l *loop.Loop) error {
			return s.rebootChecks.Run(ctx, func() { l.Heartbeat(nil) })
		}))
	}
	if end := a.shutdown.rebootEnd; end != nil && (end.Unread() || end.Report().Request != nil) {
		add("reboot", plain(end.Run))
	}
	if a.plane.Certificate != nil && !a.naming.nameInvalid() { // the certificate is for the Node's name
		add("certificate", plain(a.plane.Certificate.Run))
	}
	if watcher, able := a.plane.Client.(controlplane.NodeWatcher); able { // only such a control plane has other writers
		add("node-watch", a.whileMine(owner.Node, whileOpen(a.plane.member, func(ctx context.Context, l *loop.Loop) error {
			return a.reports.reporter.Watch(ctx, watcher, l.Heartbeat)
		})))
	}
}

// plain adapts a function that does not use its loop.
func plain(do func(context.Context) error) run {
	return func(ctx context.Context, _ *loop.Loop) error { return do(ctx) }
}

// collectorPatience is the time limit for a round of a collector. The round may wait for the other
// collector and for both requested runs, and then takes its own time.
func collectorPatience(interval config.Duration) time.Duration {
	return time.Duration(interval) + 4*runs.DefaultRunLimit + 2*time.Minute
}

// whileMine runs do while hostler owns the job.
func (a *Agent) whileMine(j owner.Job, do run) run {
	return func(ctx context.Context, l *loop.Loop) error {
		return a.owners.While(ctx, j, l, func(ctx context.Context) error { return do(ctx, l) })
	}
}

// whileOpen runs do while the gate is open.
func whileOpen(g *loop.Gate, do run) run {
	return func(ctx context.Context, l *loop.Loop) error {
		return g.While(ctx, l, func(ctx context.Context) error { return do(ctx, l) })
	}
}

// runtimesChanged starts the loops that depend on runtimes. If a collection failed because a
// runtime was not ready, it is repeated when the runtime is ready. Until then its loop is shown as
// failing. A collection that ran before a runtime was found is repeated, too.
func (a *Agent) runtimesChanged(before, after []runtime.Health) {
	a.host.facts.Renew()
	a.changed.Send()
	a.shutdown.wake.Send()
	if slices.ContainsFunc(after, func(r runtime.Health) bool { return r.Ready && !slices.ContainsFunc(before, same(r)) }) {
		a.gc.dead.Retry("RuntimeReady")
		a.gc.images.Retry("RuntimeReady")
	}
}

// same matches runtime r in the same state.
func same(r runtime.Health) func(runtime.Health) bool {
	return func(o runtime.Health) bool {
		return o.Name == r.Name && o.Endpoint == r.Endpoint && o.Ready == r.Ready
	}
}

// notice passes a runtime's event to the parts that need it.
func (a *Agent) notice(e runtime.Event) {
	a.gc.tracker.Notify(e)
	a.host.facts.Notice(e)
	a.shutdown.pods.Notice(e)
}

// setBlind notifies the parts that use events whether a runtime sends events.
func (a *Agent) setBlind(name string, blind bool) {
	a.gc.tracker.SetBlind(name, blind)
	a.shutdown.pods.SetBlind(name, blind)
}
