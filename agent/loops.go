package agent

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
)

// ownersInterval is how often the agent looks for other owners of its jobs.
const ownersInterval = 30 * time.Second

// podsInterval is how often the shutdown guard learns which pods there are where
// no runtime tells of a change, for the case that a runtime hangs in the hour of
// need, or that the power goes.
const podsInterval = time.Minute

// buildKeeper makes the lease keeper over a client that tells the loop and the
// metrics of each renewal.
func (a *Agent) buildKeeper(holder controlplane.Identity) (err error) {
	a.keeper, err = controlplane.NewLeaseKeeper(observedRenewer{a.client, func(err error) {
		a.loop("lease").beat(err)
		a.metrics.renewal(err)
	}}, controlplane.LeasePolicy{
		Node:     a.node,
		Holder:   holder,
		Duration: time.Duration(a.cfg.Lease.Duration),
		Interval: time.Duration(a.cfg.Lease.RenewInterval),
		Takeover: a.cfg.Node.Takeover,
	}, a.log)
	return err
}

// observedRenewer tells how each renewal ended.
type observedRenewer struct {
	controlplane.Client
	observe func(error)
}

// RenewLease renews and tells.
func (r observedRenewer) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	stored, err := r.Client.RenewLease(ctx, lease)
	r.observe(err)
	return stored, err
}

// buildLoops lists the loops in the order in which `hostler status` shows them.
func (a *Agent) buildLoops() {
	update := time.Duration(a.cfg.Status.UpdateInterval)
	a.guarding = &loop{name: "shutdown-guard", patience: time.Minute, run: a.guard.Run}
	a.loops = []*loop{
		{name: "lease", patience: time.Duration(a.cfg.Lease.Duration)},
		{name: "status", patience: 3*update + factsTimeout + writeTimeout},
		{name: "image-gc", patience: collectorPatience(a.cfg.ImageGC.Interval)},
		{name: "container-gc", patience: collectorPatience(a.cfg.ContainerGC.Interval)},
		{name: "last-used", patience: 15 * time.Minute},
		a.guarding,
		{name: "runtimes", patience: 2 * time.Minute},
		{name: "runtime-events"},
		{name: "network"},
		{name: "events"},
		{name: "state"},
		{name: "owners", patience: 3 * time.Minute},
		{name: "metrics"},
	}
	a.loop("lease").run = a.whileMine("lease", jobLease, a.keeper.Run)
	a.loop("status").run = func(ctx context.Context) error {
		return a.reporter.run(ctx, func(err error) { a.loop("status").beat(err) })
	}
	a.loop("image-gc").run = a.whileMine("image-gc", jobImageGC, a.images.Run)
	a.loop("container-gc").run = a.whileMine("container-gc", jobContainerGC, a.dead.Run)
	a.loop("last-used").run = a.tracker.Run
	a.loop("runtimes").run = a.lookAtRuntimes
	a.loop("runtime-events").run = func(ctx context.Context) error { return a.runtimes.watch(ctx, a.notice, a.tracker.SetBlind) }
	a.loop("network").run = func(ctx context.Context) error { return a.facts.watchNetwork(ctx, a.reporter.changed) }
	a.loop("events").run = a.recorder.Run
	a.loop("state").run = a.state.Run
	a.loop("owners").run = a.lookForOwners
	a.loop("metrics").run = a.serveMetrics
}

// collectorPatience lets a collector wait for its turn and then take its time.
func collectorPatience(interval config.Duration) time.Duration {
	return time.Duration(interval) + 2*collect.DefaultRunLimit + time.Minute
}

// loop finds a loop by its name. An unknown name is a fault of this package, and
// gives a loop that nobody sees.
func (a *Agent) loop(name string) *loop {
	for _, l := range a.loops {
		if l.name == name {
			return l
		}
	}
	return &loop{name: name}
}

// whileMine runs a loop as long as its job is hostler's, and lets it rest while
// somebody else has it.
func (a *Agent) whileMine(name string, j job, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			mine, owner, changed := a.owners.mine(j)
			if mine {
				a.loop(name).wake()
				if err := a.untilLost(ctx, j, run); err != nil {
					return err
				}
				continue
			}
			a.log.Info("job is left to its owner", "job", j, "owner", owner.Name, "evidence", owner.Evidence)
			a.loop(name).rest()
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
			if mine, owner, _ := a.owners.mine(j); mine {
				a.log.Info("job is hostler's again", "job", j, "evidence", owner.Evidence)
			}
		}
	}
}

// untilLost runs until the job is somebody else's, and then returns nil.
func (a *Agent) untilLost(ctx context.Context, j job, run func(context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		for {
			mine, _, changed := a.owners.mine(j)
			if !mine {
				stop()
				return
			}
			select {
			case <-changed:
			case <-running.Done():
				return
			}
		}
	}()
	err := run(running)
	stop()
	<-lost
	if mine, _, _ := a.owners.mine(j); !mine && ctx.Err() == nil {
		return nil
	}
	return err
}

// lookAtRuntimes asks the runtimes how they are, and tells the guard of the pods.
func (a *Agent) lookAtRuntimes(ctx context.Context) error {
	var listed time.Time
	var retry time.Duration
	for {
		before, asked := a.runtimes.current()
		err := a.runtimes.look(ctx)
		a.loop("runtimes").beat(err)
		if after, _ := a.runtimes.current(); !asked || worthAReport(before, after) {
			a.facts.renew()
			a.reporter.changed()
		}
		if err == nil && (a.podsChanged.Swap(false) || time.Since(listed) >= podsInterval) {
			listed = time.Time{}
			if pods, err := a.runtimes.guarded().Pods(ctx); err == nil {
				a.guard.Observe(pods)
				listed = time.Now()
			}
		}
		pause := runtimesInterval
		if err != nil || a.runtimes.complete() != nil {
			retry = min(max(2*retry, runtimesRetry), runtimesInterval)
			pause = retry
		} else {
			retry = 0
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// worthAReport tells whether runtimes came, went, or changed their mind.
func worthAReport(before, after []status.Runtime) bool {
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
	a.tracker.Notify(e)
	a.facts.notice(e)
	if e.Type != runtime.ImageAdded && e.Type != runtime.ImageRemoved {
		a.podsChanged.Store(true)
	}
}

// lookForOwners looks every now and then who else does hostler's jobs.
func (a *Agent) lookForOwners(ctx context.Context) error {
	tick := time.NewTicker(ownersInterval)
	defer tick.Stop()
	for {
		if a.owners.refresh(ctx) {
			for j, owner := range a.owners.all() {
				a.log.Debug("owner", "job", j, "owner", owner.Name, "evidence", owner.Evidence)
			}
			a.reporter.changed()
		}
		if mine, _, _ := a.owners.mine(jobShutdown); !mine {
			a.guard.Recheck() // a kubelet takes its lock long after it was started
		}
		a.loop("owners").beat(nil)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nodeOptions are those in force.
func (a *Agent) nodeOptions() status.Options {
	a.mu.Lock()
	o := a.policies.node
	a.mu.Unlock()
	if a.reporter != nil {
		o.Unschedulable = a.reporter.cordons.wanted(o.Unschedulable)
	}
	return o
}

// config is the configuration in force.
func (a *Agent) config() config.Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cfg
}
