package agent

import (
	"context"
	"log/slog"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/backend"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
)

// serveNetwork serves the API over the network. If the port is in use, the loop fails, but the
// agent starts.
func (a *Agent) serveNetwork(ctx context.Context, l *loop.Loop) error {
	routes := api.NetworkRoutes(a.serving.backend, a.serving.metrics, a.allowedNames, a.log.With("component", "api"))
	return a.overTLS("api.listen", a.config().API.Listen, l).Serve(ctx, api.NewServer(routes))
}

// serveMetrics serves metrics on the configured address, if there is one. Over the network it uses
// TLS.
func (a *Agent) serveMetrics(ctx context.Context, l *loop.Loop) error {
	cfg := a.config().Metrics
	switch {
	case cfg.Listen == "":
		<-ctx.Done()
		return ctx.Err()
	case cfg.Loopback():
		return listen.ServeMetrics(ctx, a.serving.metrics, cfg.Listen, a.log.With("component", l.Name()), func() { l.Heartbeat(nil) })
	}
	routes := api.NetworkMetrics(a.serving.metrics, a.allowedNames, a.log.With("component", "metrics"))
	return a.overTLS("metrics.listen", cfg.Listen, l).Serve(ctx, api.NewServer(routes))
}

// overTLS returns the network listener of a loop.
func (a *Agent) overTLS(key, address string, l *loop.Loop) listen.Network {
	return listen.Network{Key: key, Address: address, Files: a.serving.files, Log: a.log.With("component", l.Name()), Heartbeat: l.Heartbeat}
}

// allowedNames returns the effective names. A name that a reload removes is rejected from the next
// request on.
func (a *Agent) allowedNames() api.Names { return api.Names(a.config().API.TLS.AllowedNames) }

// buildBackend creates the backend, which answers requests.
func (a *Agent) buildBackend(level *slog.LevelVar) {
	guard, owners := a.shutdown.guard, a.owners
	registration := &backend.Registration{
		ControlPlane: a.plane.ControlPlane, Reporter: a.reports.reporter, Keeper: a.plane.keeper, Pacing: a.plane.pacing,
		Member: a.plane.member, Owners: owners, Settings: a.settings,
	}
	collections := &backend.Collections{
		Survey: a.gc.survey, Unused: a.gc.images, Dead: a.gc.dead, History: a.gc.history,
		Runtimes: a.host.runtimes, Owners: owners, Settings: a.settings, Held: a.kept.journal.HeldRestarts, Unread: a.unreadStops,
	}
	answers := &backend.Host{
		Version: a.version, Settings: a.settings, Registers: registration, Collects: collections,
		Runtimes: a.host.runtimes, Guard: guard, Facts: a.host.facts, Checks: a.host.checks,
		Name: a.naming.name, Loops: a.loops, RebootsSeen: a.kept.reboots, Uptime: uptime, State: a.kept.folder, Files: a.serving.files,
		Logind: a.host.logind, SelfDrains: a.shutdown.selfDrainer.Upcoming, Reboots: a.shutdown.rebooter,
	}
	a.serving.reloader = &reloader{
		settings: a.settings, version: a.version, effects: a.effects(level),
		notify: a.notifyReload, ending: a.shutdown.ending.Load, log: a.log,
	}
	a.serving.backend = &backend.Backend{
		Drainer:       a.shutdown.drainer,
		Reboots:       &backend.Reboots{Controller: a.shutdown.rebooter, Drainer: a.shutdown.drainer, Settings: a.settings, Unprotected: rebootHost{a: a}.unprotected},
		Reader:        fleet.New(a.plane.Client, a.node()),
		Reloader:      a.serving.reloader,
		Host:          answers,
		Workloads:     &backend.Workloads{Runtimes: a.host.runtimes, Guard: guard, Settings: a.settings},
		Collections:   collections,
		Checkup:       &backend.Checkup{Host: answers, Network: a.serving.network, Logind: a.host.logind, Manager: a.host.manager, Log: a.log},
		Configuration: backend.Configuration{Settings: a.settings},
		Health:        backend.Health{Loops: a.loops, Keeper: a.plane.keeper, Settings: a.settings},
	}
	a.serving.metrics = a.metrics.Handler(func() metrics.State { return answers.MetricsState(a.plane.recorder) })
}

// notifyReload notifies the service manager of a reload's start and end.
func (a *Agent) notifyReload(done bool) {
	if done {
		a.notify(a.host.notifier.Ready())
		return
	}
	a.notify(a.host.notifier.Reloading())
}
