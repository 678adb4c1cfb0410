package inspect

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/systemd"
)

// ServiceConfig returns the path of the configuration file in the loaded unit hostler.service. It
// is empty for the default path, or if systemd does not answer.
func ServiceConfig(ctx context.Context) string {
	run, err := systemd.NewManager("").Run(ctx, doctor.Service)
	if err != nil { // doctor's check of the unit reports the error
		return ""
	}
	return doctor.ConfigOf(run)
}

// Doctor checks a host whose agent does not answer, for the reason unanswered. file is the
// configuration of that agent; empty for the default path. If the files are faulty, loaded
// has the values to use instead. It needs root.
func Doctor(ctx context.Context, loaded config.Loaded, file string, fault, unanswered error) (doctor.Report, error) {
	cfg := loaded.Config
	log := slog.New(slog.DiscardHandler)
	phases, err := cfg.Shutdown.Phases()
	if err != nil {
		return doctor.Report{}, err
	}
	history, lastErr := LastShutdown(cfg, log)
	f := doctor.Facts{
		Agent:  doctor.Agent{Problem: unanswered.Error()},
		Phases: phases, StopFirst: cfg.Shutdown.StopFirst,
		Last:  history.Last,
		State: doctor.CheckState(cfg.State.Directory),

		Conditions: conditionsAlone(cfg),
		Network:    networkAlone(cfg.API, log),
		Reboots:    rebootsAlone(cfg),
	}
	f.Configuration.File, f.Configuration.Origin = file, loaded.Origin
	if fault != nil {
		f.Configuration.Fault = fault.Error()
	}
	if lastErr != nil {
		f.State.Problem = lastErr.Error()
	}
	logind := systemd.NewLogind(systemd.LogindOptions{Log: log})
	ours := owner.FindKubelets("/proc").Evidence() == ""
	f.Name = nameAlone(cfg)
	var looking errgroup.Group
	looking.Go(func() (err error) {
		f.Runtimes, err = checkOnce(ctx, cfg, log)
		return err
	})
	if f.Name != nil && f.Name.NameProblem != "" {
		cfg.ControlPlane.Type = "" // a host without a name has no Node to check
	}
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
	looking.Go(func() error {
		f.Server = Server(ctx)
		return nil
	})
	doctor.Sources{Logind: logind, Manager: systemd.NewManager(""), Root: "/", Proc: "/proc", Files: new(bounded.Files)}.Gather(ctx, &f)
	if err := looking.Wait(); err != nil {
		return doctor.Report{}, errors.Join(err, logind.Close())
	}
	if f.Kubelet.Lock != nil {
		f.Protection = doctor.Protection{Protected: true, Reason: status.ReasonDelegated, Message: "the kubelet on this host delays a shutdown for the pods"}
	}
	return doctor.Examine(f), logind.Close()
}

// checkOnce queries the state of this host's runtimes once.
func checkOnce(ctx context.Context, cfg config.Config, log *slog.Logger) (doctor.Runtimes, error) {
	ctx, cancel := context.WithTimeout(ctx, gather.ProbeTimeout)
	defer cancel()
	r, err := open.Runtimes(cfg.Runtimes, func(string, string, time.Duration, error) {}, open.Units{Manager: systemd.NewManager("")}, log)
	if err != nil {
		return doctor.Runtimes{}, err
	}
	_ = r.Refresh(ctx) // the state of each runtime has its error, too
	states, asked := r.Current()
	return Runtimes(states, asked, r), r.Close()
}

func Runtimes(states []runtime.Health, asked bool, r *discovery.Runtimes) doctor.Runtimes {
	podmans := discovery.FindPodmans("/")
	facts := doctor.Runtimes{Checked: asked, PodmanUnreachable: podmans.Unreachable, PodmanUsers: podmans.Users}
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

// nameAlone compares the host name with the Node's name if the agent does not answer.
func nameAlone(cfg config.Config) *doctor.Name {
	if cfg.Node.Enabled == config.Off {
		return nil
	}
	n := &doctor.Name{Configured: cfg.Node.Name != "", Shared: cfg.ControlPlane.Type != embedded.Type}
	var err error
	if n.Node, err = open.NodeName(cfg); err != nil {
		n.Node, n.NameProblem = status.FallbackName, err.Error()
		if invalid, ok := errors.AsType[*status.HostNameError](err); ok {
			n.NameProblem = invalid.Problem
		}
	}
	n.HostName = n.Node
	return n
}
