package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/census"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/status/report"
)

// runtimesRetry is how soon runtimes are asked again that did not answer: they may
// just be starting.
const runtimesRetry = 200 * time.Millisecond

// buildKeeper makes the lease keeper, which tells the loop of each attempt, over a
// client that tells the metrics of each renewal.
func (a *Agent) buildKeeper(machine probe.Machine) (err error) {
	a.leases = controlplane.NewLeaseWatch(nil)
	takeOff := "correct it on the control plane's object of this Node, or take it off, see docs/fleet.md"
	if a.client.Type() == kubernetes.Type {
		takeOff = fmt.Sprintf("`kubectl annotate node %s %s-` takes it off", a.node, controlplane.AnnotationLeaseDuration)
	}
	a.pacing = controlplane.NewPacing(time.Duration(a.cfg.Lease.Duration), takeOff, func(duration time.Duration) {
		a.loops.Named("lease").Allow(duration)
		a.keeper.SetPace(duration)
	}, a.log)
	a.keeper, err = controlplane.NewLeaseKeeper(observedRenewer{a.client, a.metrics.Renewal}, controlplane.LeasePolicy{
		Node:     a.node,
		Holder:   identity(machine),
		Instance: fmt.Sprintf("%s/%d/%s", machine.BootID, os.Getpid(), rand.Text()[:8]),
		Watch:    a.leases,
		Beat:     func(err error) { a.loops.Named("lease").Beat(err) },
		Duration: time.Duration(a.cfg.Lease.Duration),
		Interval: time.Duration(a.cfg.Lease.RenewInterval),
		Takeover: a.cfg.Node.Takeover,
	}, a.log)
	return err
}

// identity is the machine by which its Node and Lease are known.
func identity(machine probe.Machine) controlplane.Identity {
	return controlplane.Identity{MachineID: machine.MachineID, SystemUUID: machine.SystemUUID}
}

// buildCensus makes what looks for clones in a fleet that can be looked through.
func (a *Agent) buildCensus(machine probe.Machine) {
	finder, able := a.client.(controlplane.MachineFinder)
	if !able {
		return
	}
	self := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: machine.MachineID, BootID: machine.BootID}}}
	self.Name = a.node
	a.census = census.New(a.client, finder, self, a.log)
}

// clones are the hosts that take themselves for this one, as far as is known.
func (a *Agent) clones() []controlplane.Clone {
	var list []controlplane.Clone
	if twin := a.keeper.Stats().Clone; twin != nil {
		list = append(list, *twin)
	}
	if a.census != nil {
		list = append(list, a.census.Clones()...)
	}
	return list
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
	a.guarding = loop.New("shutdown-guard", time.Minute, a.guard.Run)
	a.loops = loop.Set{
		loop.New("lease", time.Duration(a.cfg.Lease.Duration), a.whileMine("lease", owner.Lease,
			a.whileOpen("lease", a.member, a.whileOpen("lease", a.existence, a.keeper.Run)))),
		loop.New("status", 3*update+gather.LookTimeout+report.WriteTimeout, func(ctx context.Context) error {
			return a.reporter.Run(ctx, a.loops.Named("status").Beat)
		}),
		loop.New("image-gc", collectorPatience(a.cfg.ImageGC.Interval), a.whileMine("image-gc", owner.ImageGC, a.images.Run)),
		loop.New("container-gc", collectorPatience(a.cfg.ContainerGC.Interval), a.whileMine("container-gc", owner.ContainerGC, a.dead.Run)),
		loop.New("last-used", 15*time.Minute, a.tracker.Run),
		a.guarding,
		loop.New("runtimes", 2*time.Minute, a.lookAtRuntimes),
		loop.New("runtime-events", 0, func(ctx context.Context) error { return a.runtimes.Watch(ctx, a.notice, a.setBlind) }),
		loop.New("pods", 0, a.pods.Run),
		loop.New("restart", 0, a.restarts.Run),
		loop.New("network", 0, func(ctx context.Context) error { return a.network.Run(ctx, a.reporter.Changed) }),
		loop.New("conditions", conditionsPatience, a.runConditions),
		loop.New("events", 0, a.recorder.Run),
		loop.New("state", 0, a.state.Run),
		loop.New("owners", 3*time.Minute, a.lookForOwners),
		loop.New("metrics", 0, a.serveMetrics),
	}
	if a.cfg.API.Listen != "" {
		a.loops = append(a.loops, loop.New("api", 0, a.serveNetwork))
	}
	if a.census != nil {
		a.loops = append(a.loops, loop.New("census", 0, a.whileMine("census", owner.Node, a.whileOpen("census", a.member, func(ctx context.Context) error {
			return a.census.Run(ctx, a.loops.Named("census").Beat, a.reporter.Changed)
		}))))
	}
	if pacer, able := a.client.(controlplane.Pacer); able {
		a.loops = append(a.loops, loop.New("lease-pace", 0, a.whileMine("lease-pace", owner.Lease, func(ctx context.Context) error {
			return a.pacing.Follow(ctx, pacer, a.loops.Named("lease-pace").Beat)
		})))
	}
	if a.opened.Certificate != nil {
		a.loops = append(a.loops, loop.New("certificate", 0, a.opened.Certificate.Run))
	}
	if watcher, able := a.client.(controlplane.NodeWatcher); able { // it has other writers
		a.loops = append(a.loops, loop.New("node-watch", 0, a.whileMine("node-watch", owner.Node, a.whileOpen("node-watch", a.member, func(ctx context.Context) error {
			return a.reporter.Watch(ctx, watcher, a.loops.Named("node-watch").Beat)
		}))))
	}
}

// collectorPatience lets a collector wait for its turn, which the other one and both
// runs of a person may have before, and then take its time.
func collectorPatience(interval config.Duration) time.Duration {
	return time.Duration(interval) + 4*runs.DefaultRunLimit + 2*time.Minute
}

// whileMine runs what does a job as long as that is hostler's.
func (a *Agent) whileMine(name string, j owner.Job, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return a.owners.While(ctx, j, a.loops.Named(name), run) }
}

// whileOpen runs as long as the gate is open.
func (a *Agent) whileOpen(name string, g *loop.Gate, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return g.While(ctx, a.loops.Named(name), run) }
}

// lookAtRuntimes asks the runtimes how they are.
func (a *Agent) lookAtRuntimes(ctx context.Context) error {
	var retry time.Duration
	before, asked := a.runtimes.Current()
	for {
		began := time.Now()
		err := a.runtimes.Look(ctx)
		a.loops.Named("runtimes").Beat(err)
		after, _ := a.runtimes.Current()
		if !asked || worthAReport(before, after) {
			a.runtimesChanged(before, after)
		}
		before, asked = after, true
		pause := discovery.Interval
		if err != nil || a.runtimes.Complete() != nil {
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
			if left <= discovery.SearchInterval || a.runtimes.Search(ctx) {
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
	a.facts.Renew()
	a.reporter.Changed()
	a.restarts.Stir()
	if slices.ContainsFunc(after, func(r runtime.Health) bool { return r.Ready && !slices.ContainsFunc(before, same(r)) }) {
		a.dead.Retry("RuntimeReady")
		a.images.Retry("RuntimeReady")
	}
}

// same tells which runtime is r, in r's state.
func same(r runtime.Health) func(runtime.Health) bool {
	return func(o runtime.Health) bool {
		return o.Name == r.Name && o.Endpoint == r.Endpoint && o.Ready == r.Ready
	}
}

// worthAReport tells whether runtimes came, went, or changed their mind.
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
	a.tracker.Notify(e)
	a.facts.Notice(e)
	a.pods.Notice(e)
}

// setBlind tells those who go by events that a runtime sends none, or does again.
func (a *Agent) setBlind(name string, blind bool) {
	a.tracker.SetBlind(name, blind)
	a.pods.SetBlind(name, blind)
}

// nodeOptions are those in force.
func (a *Agent) nodeOptions() status.Options {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.policies.Node
}

// config is the configuration in force.
func (a *Agent) config() config.Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cfg
}

// networkOptions have the way to the control plane followed, where it is elsewhere.
func (a *Agent) networkOptions() gather.NetworkOptions {
	return gather.NetworkOptions{
		ControlPlane: a.opened.Address, Endpoint: a.client.Endpoint, Lost: a.opened.Reconnect,
		Log: a.log.With("component", "network"),
	}
}
