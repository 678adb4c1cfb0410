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
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/report"
)

// runtimesRetry is how soon runtimes are asked again that did not answer: they may
// just be starting.
const runtimesRetry = 200 * time.Millisecond

// newLoops lists the loops of every agent, with their patience, in the order in which
// `hostler status` shows them. What they run comes later: it is made with their Beat.
func newLoops(cfg config.Config) loop.Set {
	var set loop.Set
	for _, l := range []struct {
		name     string
		patience time.Duration
	}{
		{"lease", time.Duration(cfg.Lease.Duration)},
		{"status", 3*time.Duration(cfg.Status.UpdateInterval) + gather.LookTimeout + report.WriteTimeout},
		{"image-gc", collectorPatience(cfg.ImageGC.Interval)},
		{"container-gc", collectorPatience(cfg.ContainerGC.Interval)},
		{"last-used", 15 * time.Minute},
		{"shutdown-guard", time.Minute},
		{"runtimes", 2 * time.Minute},
		{"runtime-events", 0},
		{"pods", 0},
		{"restart", 0},
		{"network", 0},
		{"conditions", conditionsPatience},
		{"events", 0},
		{"state", 0},
		{"owners", 3 * time.Minute},
		{"metrics", 0},
	} {
		set = append(set, loop.New(l.name, l.patience, nil))
	}
	return set
}

// fillLoops says what each loop runs, and adds those that only some agents have.
func (a *Agent) fillLoops(cfg config.Config) {
	beat := func(name string) func(error) { return a.loops.Named(name).Beat }
	for name, run := range map[string]func(context.Context) error{
		"lease": a.whileMine("lease", owner.Lease,
			a.whileOpen("lease", a.plane.member, a.whileOpen("lease", a.plane.existence, a.plane.keeper.Run))),
		"status":         func(ctx context.Context) error { return a.reports.reporter.Run(ctx, beat("status")) },
		"image-gc":       a.whileMine("image-gc", owner.ImageGC, a.gc.images.Run),
		"container-gc":   a.whileMine("container-gc", owner.ContainerGC, a.gc.dead.Run),
		"last-used":      a.gc.tracker.Run,
		"shutdown-guard": a.shutdown.guard.Run,
		"runtimes":       a.lookAtRuntimes,
		"runtime-events": func(ctx context.Context) error { return a.host.runtimes.Watch(ctx, a.notice, a.setBlind) },
		"pods":           a.shutdown.pods.Run,
		"restart":        a.shutdown.restarts.Run,
		"network":        func(ctx context.Context) error { return a.host.network.Run(ctx, a.changed.Send) },
		"conditions": func(ctx context.Context) error {
			return a.host.checks.Run(ctx, func() { beat("conditions")(nil) })
		},
		"events":  a.plane.recorder.Run,
		"state":   a.kept.folder.Run,
		"owners":  a.lookForOwners,
		"metrics": a.serveMetrics,
	} {
		a.loops.Named(name).Do(run)
	}
	add := func(name string, run func(context.Context) error) { a.loops = append(a.loops, loop.New(name, 0, run)) }
	if cfg.API.Listen != "" {
		add("api", a.serveNetwork)
	}
	if a.plane.census != nil {
		add("census", a.whileMine("census", owner.Node, a.whileOpen("census", a.plane.member, func(ctx context.Context) error {
			return a.plane.census.Run(ctx, beat("census"), a.changed.Send)
		})))
	}
	if pacer, able := a.plane.Client.(controlplane.Pacer); able {
		add("lease-pace", a.whileMine("lease-pace", owner.Lease, func(ctx context.Context) error {
			return a.plane.pacing.Follow(ctx, pacer, beat("lease-pace"))
		}))
	}
	if a.plane.Certificate != nil {
		add("certificate", a.plane.Certificate.Run)
	}
	if watcher, able := a.plane.Client.(controlplane.NodeWatcher); able { // it has other writers
		add("node-watch", a.whileMine("node-watch", owner.Node, a.whileOpen("node-watch", a.plane.member, func(ctx context.Context) error {
			return a.reports.reporter.Watch(ctx, watcher, beat("node-watch"))
		})))
	}
}

// collectorPatience lets a collector wait for its turn, which the other one and both
// runs of a person may have before, and then take its time.
func collectorPatience(interval config.Duration) time.Duration {
	return time.Duration(interval) + 4*runs.DefaultRunLimit + 2*time.Minute
}

// whileMine runs what does a job as long as that is hostler's.
func (a *Agent) whileMine(name string, j owner.Job, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return a.jobs.While(ctx, j, a.loops.Named(name), run) }
}

// whileOpen runs as long as the gate is open.
func (a *Agent) whileOpen(name string, g *loop.Gate, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return g.While(ctx, a.loops.Named(name), run) }
}

// lookAtRuntimes asks the runtimes how they are.
func (a *Agent) lookAtRuntimes(ctx context.Context) error {
	var retry time.Duration
	before, asked := a.host.runtimes.Current()
	for {
		began := time.Now()
		err := a.host.runtimes.Look(ctx)
		a.loops.Named("runtimes").Beat(err)
		after, _ := a.host.runtimes.Current()
		if !asked || worthAReport(before, after) {
			a.runtimesChanged(before, after)
		}
		before, asked = after, true
		pause := discovery.Interval
		if err != nil || a.host.runtimes.Complete() != nil {
			retry = min(max(2*retry, runtimesRetry), discovery.Interval)
			pause = retry
		} else {
			retry = 0
		}
		if err := a.searchUntil(ctx, began.Add(pause)); err != nil { // one that hangs has cost time
			return err
		}
	}
}

// searchUntil looks for runtimes that came until it is time, or until one may have.
func (a *Agent) searchUntil(ctx context.Context, over time.Time) error {
	for {
		left := time.Until(over)
		select {
		case <-time.After(min(left, discovery.SearchInterval)):
			if left <= discovery.SearchInterval || a.host.runtimes.Search(ctx) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// runtimesChanged has those look again whom it concerns. A collection that failed
// for a runtime's sake is made up for once that is ready: until then its loop is
// shown as failing. So is one that was made before a runtime was found, as that at the
// start is.
func (a *Agent) runtimesChanged(before, after []runtime.Health) {
	a.host.facts.Renew()
	a.changed.Send()
	a.shutdown.wake.Send()
	if slices.ContainsFunc(after, func(r runtime.Health) bool { return r.Ready && !slices.ContainsFunc(before, same(r)) }) {
		a.gc.dead.Retry("RuntimeReady")
		a.gc.images.Retry("RuntimeReady")
	}
}

// same tells which runtime is r, in r's state.
func same(r runtime.Health) func(runtime.Health) bool {
	return func(o runtime.Health) bool {
		return o.Name == r.Name && o.Endpoint == r.Endpoint && o.Ready == r.Ready
	}
}

// worthAReport reports whether runtimes came, went, or changed their mind.
func worthAReport(before, after []runtime.Health) bool {
	if len(before) != len(after) {
		return true
	}
	for i := range after {
		if before[i].Ready != after[i].Ready || before[i].Name != after[i].Name {
			return true
		}
	}
	return false
}

// notice hands an event of a runtime to those whom it concerns.
func (a *Agent) notice(e runtime.Event) {
	a.gc.tracker.Notify(e)
	a.host.facts.Notice(e)
	a.shutdown.pods.Notice(e)
}

// setBlind tells those who go by events that a runtime sends none, or does again.
func (a *Agent) setBlind(name string, blind bool) {
	a.gc.tracker.SetBlind(name, blind)
	a.shutdown.pods.SetBlind(name, blind)
}
