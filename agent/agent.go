// Package agent is the daemon: it wires the rooms together in one visible order,
// keeps their loops running, and decides what a signal means.
//
// It owns which job is hostler's on this host, the health of the loops, and what
// happens between the first line of the log and the last. It refuses to decide
// anything about pods, images or conditions: that is the rooms'.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/census"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/history"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/gc/meter"
	"hostler.io/hostler/gc/podlogs"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/runtime/orphans"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/restart"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/status/reboots"
	"hostler.io/hostler/status/report"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/notify"
)

// Options is what the agent gets from the process it runs in.
type Options struct {
	Config   config.Loaded
	File     string                        // that it is read from; empty for the default one
	Reload   func() (config.Loaded, error) // reads the configuration again, and tells nobody
	Version  string
	Getenv   func(string) string
	Unsetenv func(string) error
	Log      *slog.Logger
	Level    *slog.LevelVar // of Log
}

// Agent is a running or a half-built agent.
type Agent struct {
	*maintenance.Drainer // what a person does to the node
	*fleet.Reader        // what a person sees of the other hosts
	drained              *maintenance.Drained

	options    Options
	log        *slog.Logger
	node       string // the Node's name
	metrics    *metrics.Metrics
	owners     *owner.Owners
	runtimes   *discovery.Runtimes
	network    *gather.Network
	conditions *conditions.Runner
	facts      *gather.Facts
	opened     *open.ControlPlane
	client     controlplane.Client // of opened
	recorder   *controlplane.Recorder
	keeper     *controlplane.LeaseKeeper
	pacing     *controlplane.Pacing     // for how long the control plane asks the Lease to be good
	leases     *controlplane.LeaseWatch // judges whether another machine is alive
	census     *census.Census           // nil where the control plane has no fleet to look through
	existence  *loop.Gate               // shut while there is no Node, and hostler is not to create it
	member     *loop.Gate               // shut once a person took the Node off the control plane
	reporter   *report.Reporter
	chronicle  *report.Chronicle
	journal    *journal.Journal
	reboots    *reboots.Ledger
	boot       string            // names the present one
	kept       *statefile.Values // what is still to report, and the reboots
	notes      *statefile.Values // of the Node: what nothing else records, such as a person's cordon
	survey     *survey.Survey
	tracker    *lastused.Tracker
	images     *collect.Images
	dead       *collect.Containers
	history    *history.History
	guard      *shutdown.Guard
	standIn    *orphans.StandIn    // for runtimes that go before their pods
	pods       *discovery.PodWatch // for the guard
	restarts   *restart.Restarter
	logind     *systemd.Logind
	manager    *systemd.Manager
	notifier   *notify.Notifier
	state      *statefile.Folder
	listener   net.Listener
	files      *listen.Files // of what is served over the network; nil if nothing is
	loops      loop.Set
	guarding   *loop.Loop // the shutdown guard, which outlives the other loops

	ending       atomic.Bool // a signal has come that ends the agent
	kubeletsNode atomic.Bool // a kubelet of this host has the Node in the cluster, or had it last

	cleanups []cleanup

	reloading sync.Mutex // held by the reload that is under way

	mu       sync.Mutex // guards what follows
	cfg      config.Config
	policies open.Policies
	refused  error         // why the last reload was refused; nil if it was not
	refusal  config.Config // what it would have taken up
}

// cleanup undoes one step of New.
type cleanup struct {
	name string
	do   func() error
}

// New builds the agent up to its open API socket, and starts nothing. An error
// leaves nothing behind.
func New(o Options) (*Agent, error) {
	a := &Agent{options: o, cfg: o.Config.Config, log: o.Log}
	warnIgnored(a.log, o.Config.Ignored)
	if err := a.build(); err != nil {
		if closing := a.close(); closing != nil {
			a.log.Warn("what was built is not closed cleanly", "error", closing)
		}
		return nil, err
	}
	return a, nil
}

func (a *Agent) build() (err error) {
	o := a.options
	a.notifier = notify.New(o.Getenv, o.Unsetenv)
	kept, err := notify.PassedFiles(o.Getenv, o.Unsetenv)
	if err != nil {
		a.log.Warn("descriptors kept by the service manager", "error", err)
	}
	reader, err := probe.New("/")
	if err != nil {
		return err
	}
	machine, err := reader.Machine()
	if err != nil {
		a.log.Warn("some facts of the machine are missing", "error", err)
	}
	if a.policies, err = open.NewPolicies(a.cfg, machine.HostName, o.Version); err != nil {
		return err
	}
	a.node = a.policies.Node.Name

	if a.state, err = statefile.Open(a.cfg.State.Directory, a.log); err != nil {
		return err
	}
	a.defers("state", a.state.Close)
	a.notes, a.kept = a.state.Notes("node"), a.state.Values("agent")
	a.recallKubelet()
	if a.listener, err = api.Listen(a.cfg.API.Socket); err != nil {
		return err
	}
	a.defers("api socket", func() error {
		if err := a.listener.Close(); !errors.Is(err, net.ErrClosed) { // by the server
			return err
		}
		return nil
	})

	a.files = open.Files(a.cfg.API, a.log)
	a.metrics = metrics.New(a.standing)
	a.manager = systemd.NewManager("")
	if a.runtimes, err = open.Runtimes(a.cfg.Runtimes, a.metrics.RuntimeCall, open.Units{Manager: a.manager, Stops: a.unitStops}, a.log); err != nil {
		return err
	}
	a.defers("runtimes", a.runtimes.Close)
	a.logind = systemd.NewLogind(systemd.LogindOptions{Notifier: a.notifier, Kept: kept, Log: a.log})
	a.defers("logind", a.logind.Close)
	a.owners = owner.New(switches(a.cfg), a.otherOwners, a.log)

	if err := a.buildControlPlane(machine); err != nil {
		return err
	}
	if err := a.buildConditions(); err != nil {
		return err
	}
	a.buildReporter(reader, machine)
	if err := a.buildGuard(); err != nil {
		return err
	}
	a.buildMaintenance()
	if err := a.checkReserved(a.policies.Node); err != nil {
		return err
	}
	if err := a.buildCollectors(); err != nil {
		return err
	}
	a.buildLoops()
	return nil
}

func (a *Agent) buildControlPlane(machine probe.Machine) (err error) {
	a.opened, err = open.NewControlPlane(a.cfg.ControlPlane, open.ControlPlaneOptions{
		Node: a.node, Version: a.options.Version,
		State: a.state, Endpoint: a.cfg.State.Directory, Machine: identity(machine),
		Renewed: func() { a.reporter.Changed() }, // it need not wait for its next look
		Log:     a.log,
	})
	if err != nil {
		return err
	}
	a.client = a.opened.Client
	a.defers("control plane", a.client.Close)
	a.recorder = controlplane.NewRecorder(a.client, a.node, time.Now, a.log)
	a.existence, a.member = loop.NewGate(""), loop.NewGate("")
	if !a.cfg.Node.Register {
		a.existence.Set("whether there is a Node is not known yet")
	}
	a.buildCensus(machine)
	return a.buildKeeper(machine)
}

func (a *Agent) buildGuard() (err error) {
	if err := a.buildStandIn(); err != nil {
		return err
	}
	a.guard, err = shutdown.New(shutdown.Options{
		Phases:    a.policies.Phases,
		Rules:     a.policies.Rules,
		Runtime:   a.standIn,
		Journal:   a.journal,
		Log:       a.log,
		Inhibitor: a.logind,
		First:     a.first(),
		Reporter:  report.Farewell{Reporter: a.reporter, Chronicle: a.chronicle, Flush: a.state.Flush},
		Delegated: a.delegated,
		Notify:    a.shutdownChanged,
		Settled:   func() { a.restarts.Stir() },
		Beat:      func(err error) { a.guarding.Beat(err) },
	})
	if err != nil {
		return err
	}
	a.pods = discovery.NewPodWatch(a.standIn.Pods, a.observed, func() { a.guard.Change() })
	a.restarts = restart.New(a.restartOptions())
	return nil
}

func (a *Agent) buildMaintenance() {
	a.Reader = fleet.New(a.client, a.node)
	a.drained = maintenance.OpenDrained(a.state.File("drained"))
	a.Drainer = maintenance.New(maintenance.Options{
		Node:         a.node,
		ControlPlane: a.client.Type(),
		Owners:       a.owners,
		Reporter:     a.reporter,
		Recorder:     a.recorder,
		Guard:        a.guard,
		Member:       a.member,
		Drained:      a.drained,
		OutOfReach:   a.runtimes.OutOfReach,
		Flush:        a.state.Flush,
		Log:          a.log,
	})
}

func (a *Agent) buildReporter(reader *probe.Reader, machine probe.Machine) {
	a.network = gather.NewNetwork(a.networkOptions())
	a.facts = gather.NewFacts(gather.FactsOptions{
		Reader:     reader,
		Folder:     a.cfg.State.Directory,
		Runtimes:   a.runtimes,
		Machine:    machine,
		Network:    a.network.Current,
		Guard:      func() shutdown.Status { return a.guard.Status() },
		GuardFacts: a.guardFacts,
		Stalls:     func() []string { return a.nodeOptions().Pressure.Stalls() },
		MaxImages:  func() int { return a.config().Status.MaxImages },
		Custom:     a.conditions.Custom,
	})
	a.boot = open.Boot(machine.BootID, a.manager, a.log)
	a.journal = journal.Open(open.JournalFile(a.cfg), a.boot, a.log)
	a.reboots = a.openReboots(reader, machine)
	a.reporter = report.New(a.reports())
	a.chronicle = report.NewChronicle(a.node, a.recorder, a.journal, a.reboots, a.kept, a.log)
}

// reports says what the reporter tells, and to whom.
func (a *Agent) reports() report.Options {
	return report.Options{
		Client:   a.client,
		Recorder: a.recorder,
		Facts:    a.facts,
		Node:     a.nodeOptions,
		Policy: report.Policy{
			Update:    time.Duration(a.cfg.Status.UpdateInterval),
			Rewrite:   time.Duration(a.cfg.Status.ReportInterval),
			Takeover:  a.cfg.Node.Takeover,
			AdoptOnly: !a.cfg.Node.Register,
		},
		Watch:   a.leases,
		Clones:  a.clones,
		Mine:    func() bool { mine, _, _ := a.owners.Mine(owner.Node); return mine },
		Beside:  a.besideKubelet,
		Boot:    a.boot,
		Storage: report.Storage{Store: a.kept, Notes: a.notes, Flush: a.state.Flush},
		Listeners: report.Listeners{
			Named:   a.keeper.SetOwner,
			Asked:   func(leaseDuration string) { a.pacing.Ask(controlplane.AskedOfNode, leaseDuration) },
			Waits:   a.existence.Set,
			Observe: a.metrics.StatusWrite,
			Count:   a.transitioned,
		},
		Log: a.log,
	}
}

// checkReserved refuses to keep more for the system than there is.
func (a *Agent) checkReserved(o status.Options) error {
	ctx, cancel := context.WithTimeout(context.Background(), gather.LookTimeout)
	defer cancel()
	return status.CheckReserved(a.facts.Measure(ctx, nil), o.Reserved, o.Pressure)
}

func (a *Agent) buildCollectors() (err error) {
	a.tracker, err = lastused.New(lastused.Options{
		Store:    a.state.File("lastused"),
		Runtimes: func() []lastused.Runtime { return members[lastused.Runtime](a.runtimes.Set()) },
		Observe:  func(err error) { a.loops.Named("last-used").Beat(err) },
		Log:      a.log.With("component", "last-used"),
	})
	if err != nil {
		return err
	}
	a.survey = &survey.Survey{
		Runtimes:  func() []survey.Runtime { return members[survey.Runtime](a.runtimes.Set()) },
		Meter:     &meter.Statfs{},
		Uses:      a.tracker,
		Protected: a.protectedPods,
		Logs:      podlogs.New("/"),
		Unseen:    a.runtimes.Unseen,
		Kubelet:   func() bool { return a.owners.Seen(owner.ContainerGC) },
	}
	a.history = history.New(a.state.File("gc-history"))
	turn := runs.NewTurn()
	a.images, err = collect.NewImages(a.policies.GC.Images, runs.Options{
		Survey:   a.survey,
		Turn:     turn,
		Interval: time.Duration(a.cfg.ImageGC.Interval),

		LeaveAlone: func() []string { return a.leftAlone(a.config().ImageGC.Enabled) },

		Observe: func(r runs.Report) { a.collected("image-gc", history.Images, r) },
		Log:     a.log.With("component", "image-gc"),
	})
	if err != nil {
		return err
	}
	a.dead, err = collect.NewContainers(a.policies.GC.Containers, runs.Options{
		Survey:   a.survey,
		Turn:     turn,
		Interval: time.Duration(a.cfg.ContainerGC.Interval),

		LeaveAlone: func() []string { return a.leftAlone(a.config().ContainerGC.Enabled) },

		Observe: func(r runs.Report) { a.collected("container-gc", history.Containers, r) },
		Log:     a.log.With("component", "container-gc"),
	})
	if err != nil {
		return err
	}
	a.images.ContainersFirst(a.dead, func() bool { mine, _, _ := a.owners.Mine(owner.ContainerGC); return mine })
	return nil
}

// defers notes what undoes a step of New.
func (a *Agent) defers(name string, do func() error) {
	a.cleanups = append(a.cleanups, cleanup{name, do})
}

// close undoes what New did, the last step first.
func (a *Agent) close() error {
	var errs []error
	for _, c := range slices.Backward(a.cleanups) {
		if err := c.do(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", c.name, err))
		}
	}
	a.cleanups = nil
	return errors.Join(errs...)
}
