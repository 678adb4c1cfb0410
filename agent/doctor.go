package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/systemd"
)

// Doctor looks at all that protects the pods at a shutdown, and changes nothing.
func (a *Agent) Doctor(ctx context.Context) (doctor.Report, error) {
	guard := a.guard.Status()
	states, asked := a.runtimes.Current()
	a.mu.Lock()
	f := doctor.Facts{
		Agent:  doctor.Agent{Answers: true, PID: os.Getpid(), Version: a.options.Version},
		Phases: a.policies.phases, StopFirst: a.cfg.Shutdown.StopFirst,
		Guard:    &guard,
		Runtimes: runtimeFacts(states, asked, a.runtimes),
		Last:     guard.Last,
		State:    doctor.LookAtState(a.cfg.State.Directory),
	}
	a.mu.Unlock()
	f.Configuration = a.configuration()
	f.Conditions = conditionFacts(a.customConditions())
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

// ServiceConfig is the configuration file that hostler.service is told to read, as systemd
// has loaded it; empty for the default one, or where systemd cannot be asked.
func ServiceConfig(ctx context.Context) string {
	run, err := systemd.NewManager("").Run(ctx, doctor.Service)
	if err != nil { // doctor's check of the unit says so
		return ""
	}
	return doctor.ConfigOf(run)
}

// Doctor does so on a host whose agent does not answer, for the reason given, of an agent
// that would read that file; empty for the default one. Where the files have a fault, cfg is
// what to go by instead. It needs root.
func Doctor(ctx context.Context, cfg config.Config, file string, fault, unanswered error) (doctor.Report, error) {
	log := slog.New(slog.DiscardHandler)
	phases, err := cfg.Shutdown.Phases()
	if err != nil {
		return doctor.Report{}, err
	}
	story, lastErr := LastShutdown(cfg, log)
	f := doctor.Facts{
		Agent:  doctor.Agent{Problem: unanswered.Error()},
		Phases: phases, StopFirst: cfg.Shutdown.StopFirst,
		Last:  story.Last,
		State: doctor.LookAtState(cfg.State.Directory),

		Conditions: conditionsAlone(cfg),
		Network:    networkAlone(cfg.API, log),
	}
	f.Configuration.File = file
	if fault != nil {
		f.Configuration.Fault = fault.Error()
	}
	if lastErr != nil {
		f.State.Problem = lastErr.Error()
	}
	logind := systemd.NewLogind(systemd.LogindOptions{Log: log})
	evidence, _ := owner.FindKubelet("/proc")
	ours := evidence == ""
	var looking errgroup.Group
	looking.Go(func() (err error) {
		f.Runtimes, err = lookOnce(ctx, cfg, log)
		return err
	})
	looking.Go(func() (err error) {
		f.Machine, err = lookAlone(ctx, cfg)
		return err
	})
	looking.Go(func() (err error) {
		f.Cluster, err = clusterAlone(ctx, cfg, ours, log)
		return err
	})
	looking.Go(func() (err error) {
		f.Etcd, err = etcdAlone(ctx, cfg, ours)
		return err
	})
	looking.Go(func() (err error) {
		f.Plugin, err = pluginAlone(ctx, cfg, ours, log)
		return err
	})
	doctor.Sources{Logind: logind, Manager: systemd.NewManager(""), Root: "/", Kubelet: evidence}.Gather(ctx, &f)
	if err := looking.Wait(); err != nil {
		return doctor.Report{}, errors.Join(err, logind.Close())
	}
	if f.Kubelet.Lock != nil {
		f.Protection = doctor.Protection{Protected: true, Reason: status.ReasonDelegated, Message: "the kubelet on this host delays a shutdown for the pods"}
	}
	return doctor.Examine(f), logind.Close()
}

// lookOnce asks the runtimes of this host how they are.
func lookOnce(ctx context.Context, cfg config.Config, log *slog.Logger) (doctor.Runtimes, error) {
	ctx, cancel := context.WithTimeout(ctx, gather.LookTimeout)
	defer cancel()
	r, err := newRuntimes(cfg.Runtimes, func(string, string, time.Duration, error) {}, units{Manager: systemd.NewManager("")}, log)
	if err != nil {
		return doctor.Runtimes{}, err
	}
	_ = r.Look(ctx) // what it says is in each runtime's state as well
	states, asked := r.Current()
	return runtimeFacts(states, asked, r), r.Close()
}

func runtimeFacts(states []runtime.Health, asked bool, r *discovery.Runtimes) doctor.Runtimes {
	podmans := discovery.LookForPodmans("/")
	facts := doctor.Runtimes{Asked: asked, PodmanUnheard: podmans.Unheard, PodmanUsers: podmans.Users}
	for _, d := range r.Dead() {
		dead := doctor.DeadSocket{Path: d.Path}
		if errors.Is(d.Err, runtime.ErrUnsupported) {
			dead.Unfit = d.Err.Error()
		}
		facts.Dead = append(facts.Dead, dead)
	}
	for _, g := range r.Gone() {
		facts.Gone = append(facts.Gone, doctor.Gone(g))
	}
	for _, s := range states {
		facts.List = append(facts.List, doctor.Runtime{Name: s.Name, Version: s.Version, Endpoint: s.Endpoint, Ready: s.Ready, Message: s.Message})
	}
	return facts
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
