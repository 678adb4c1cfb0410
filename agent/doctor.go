package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"sync"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/inspect"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/systemd"
)

// Doctor looks at all that protects the pods at a shutdown, and changes nothing.
func (a *Agent) Doctor(ctx context.Context) (doctor.Report, error) {
	guard := a.guard.Status()
	states, asked := a.runtimes.Current()
	a.mu.Lock()
	f := doctor.Facts{
		Agent:  doctor.Agent{Answers: true, PID: os.Getpid(), Version: a.options.Version},
		Phases: a.policies.Phases, StopFirst: a.cfg.Shutdown.StopFirst,
		Guard:    &guard,
		Runtimes: inspect.Runtimes(states, asked, a.runtimes),
		Last:     guard.Last,
		State:    doctor.LookAtState(a.cfg.State.Directory),
	}
	a.mu.Unlock()
	f.Configuration = a.configuration()
	custom := a.customConditions()
	f.Conditions = inspect.Conditions(custom.Directory, custom.Checks, custom.Faults)
	f.Network = a.networkFacts()
	if health := a.state.Health(); health.Message != "" {
		f.State.Problem = health.Message
	}
	f.Protection.Protected, f.Protection.Reason, f.Protection.Message = status.Protected(a.protectionFacts(guard))
	evidence, _ := owner.FindKubelet("/proc")
	var looking sync.WaitGroup
	looking.Go(func() { f.Cluster = a.cluster(ctx) })
	looking.Go(func() { f.Etcd = a.etcdFacts(ctx) })
	looking.Go(func() { f.Plugin = a.pluginFacts(ctx) })
	looking.Go(func() { a.look(ctx, &f) })
	doctor.Sources{Logind: a.logind, Manager: a.manager, Root: "/", Kubelet: evidence}.Gather(ctx, &f)
	looking.Wait()
	return doctor.Examine(f), nil
}

// protectionFacts are all that the condition ShutdownProtected is judged by.
func (a *Agent) protectionFacts(g shutdown.Status) status.Facts {
	runtimes, asked := a.runtimes.Current()
	return status.Facts{Shutdown: a.guardFacts(g), RuntimesAsked: asked, Runtimes: runtimes, Unheard: a.runtimes.Unheard()}
}

// guardFacts says in the Node's words what the shutdown guard says of itself.
func (a *Agent) guardFacts(g shutdown.Status) status.Shutdown {
	s := status.Shutdown{
		State: g.State.String(), Reason: g.Reason,
		Granted: g.InhibitDelayMax.Duration, Needed: g.InhibitDelayNeeded.Duration, Shortage: g.InhibitDelayShortage,
	}
	if g.State != shutdown.Disarmed {
		return s
	}
	switch {
	case g.InhibitDelayNeeded.Duration == 0:
		s.Fault = status.ReasonSwitchedOff
		// It may be switched off because somebody else does it.
		if _, other, _ := a.owners.Mine(owner.Shutdown); other.Name == owner.Kubelet {
			s.State, s.Reason, s.Fault = shutdown.Delegated.String(), other.Name+": "+other.Evidence, ""
		}
	case errors.Is(g.Trouble, systemd.ErrNoBus):
		s.Fault = status.ReasonNoBus
	case errors.Is(g.Trouble, systemd.ErrNoLogind), errors.Is(g.Trouble, shutdown.ErrLoginManagerGone):
		s.Fault = status.ReasonNoLogind
	case g.Trouble != nil:
		s.Fault = status.ReasonNoLock
	}
	return s
}

// look takes into the facts of doctor what is measured now: the machine, its filesystems,
// and what of runtimes goes on request. A runtime that does not answer in time is told by
// another check.
func (a *Agent) look(ctx context.Context, f *doctor.Facts) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	facts, err := a.survey.Facts(ctx, gc.Options{Images: true})
	f.Collection = a.collection(facts)
	var places []runtime.Filesystem
	for _, u := range facts.Filesystems {
		places = append(places, u.Filesystem)
	}
	f.Machine = inspect.Machine(a.facts.Machine(), a.facts.Measure(ctx, places), a.nodeOptions())
	if err != nil {
		f.Machine.ImagesUntold = err.Error()
	}
	for _, fs := range gc.Plan(facts, a.gcPolicy(), time.Now(), gc.Options{Images: true}).Filesystems {
		f.Machine.ImageFilesystems = append(f.Machine.ImageFilesystems, fs.FilesystemStatus)
	}
	if mine, _, _ := a.owners.Mine(owner.ImageGC); mine && len(a.leftAlone(a.config().ImageGC.Enabled)) == 0 {
		f.Machine.HighPercent, f.Machine.LowPercent = a.config().ImageGC.HighThresholdPercent, a.config().ImageGC.LowThresholdPercent
	}
}

// cluster looks at the cluster that this host is a node of; nil if there is none.
func (a *Agent) cluster(ctx context.Context) *doctor.Cluster {
	cfg := a.config()
	if cfg.ControlPlane.Type != kubernetes.Type {
		return nil
	}
	var current *tls.Certificate
	var waits error
	if a.opened.Certificate != nil {
		_, waits = a.opened.Certificate.Status()
		current, _ = a.opened.Certificate.Certificate() // waits tells why not
	}
	c := inspect.Cluster(ctx, cfg, a.node, a.options.Version, current, waits, a.log)
	c.Mine, c.Writing = a.writes()
	c.Stands, c.Drift, c.Overdue = a.stands(cfg)
	return c
}

// writes tells whether the Node is this agent's, and what keeps it from being written.
func (a *Agent) writes() (mine bool, err error) {
	mine, _, _ = a.owners.Mine(owner.Node)
	if mine && a.member.Reason() == "" {
		_, _, _, err = a.reporter.Current()
	}
	return mine, err
}

// stands tells what the Node waits for, what of it is not as it is wanted, and whether
// its Lease is overdue: of one that rests nothing is.
func (a *Agent) stands(cfg config.Config) (waits string, drift []doctor.Mend, overdue string) {
	standing := a.reporter.Standing()
	for _, d := range standing.Drift {
		drift = append(drift, doctor.Mend{Message: d.Message, Command: d.Mend})
	}
	if err := a.keeper.Stats().Overdue(time.Duration(cfg.Lease.Duration)); err != nil {
		overdue = err.Error()
	}
	return standing.Waits, drift, overdue
}

// etcdFacts look at the etcd that keeps this host's Node; nil if none does.
func (a *Agent) etcdFacts(ctx context.Context) *doctor.Etcd {
	cfg := a.config()
	if cfg.ControlPlane.Type != etcd.Type {
		return nil
	}
	e := inspect.Etcd(ctx, cfg, a.node, a.options.Version)
	e.Mine, e.Writing = a.writes()
	e.Stands, e.Drift, e.Overdue = a.stands(cfg)
	return e
}

// pluginFacts look at the plugin that keeps this host's Node; nil if none does.
func (a *Agent) pluginFacts(ctx context.Context) *doctor.Plugin {
	if a.opened.Plugin == nil {
		return nil
	}
	p := inspect.Plugin(ctx, a.opened.Plugin, a.node)
	p.Mine, p.Writing = a.writes()
	p.Stands, p.Drift, p.Overdue = a.stands(a.config())
	return p
}
