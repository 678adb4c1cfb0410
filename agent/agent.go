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
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/controlplane/embedded"
	"hostler.io/hostler/agent/state"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/systemd"
)

// Options is what the agent gets from the process it runs in.
type Options struct {
	Config   config.Config
	Reload   func() (config.Config, error) // reads the configuration again
	Version  string
	Getenv   func(string) string
	Unsetenv func(string) error
	Log      *slog.Logger
	Level    *slog.LevelVar // of Log
}

// Agent is a running or a half-built agent.
type Agent struct {
	options  Options
	log      *slog.Logger
	node     string // the Node's name
	metrics  *metrics
	owners   *owners
	runtimes *runtimes
	facts    *facts
	client   controlplane.Client
	recorder *controlplane.Recorder
	keeper   *controlplane.LeaseKeeper
	reporter *reporter
	journal  *journal.Journal
	boot     string // names the present one
	kept     store  // of what is to be told later
	survey   *collect.Survey
	tracker  *lastused.Tracker
	images   *collect.Images
	dead     *collect.Containers
	guard    *shutdown.Guard
	logind   *systemd.Logind
	manager  *systemd.Manager
	notifier *systemd.Notifier
	state    *state.DB
	listener net.Listener
	loops    []*loop
	guarding *loop // the shutdown guard, which outlives the other loops

	podsChanged atomic.Bool // since pods were listed last, as a runtime tells

	released time.Time // end of the drain last told of; of the goroutine that the guard notifies by

	keeping sync.Mutex // held while Events are kept; guards telling
	telling string     // the boot whose end an Event tells of that was recorded here

	cleanups []cleanup

	mu       sync.Mutex // guards what follows
	cfg      config.Config
	policies policies
}

// cleanup undoes one step of New.
type cleanup struct {
	name string
	do   func() error
}

// New builds the agent up to its open API socket, and starts nothing. An error
// leaves nothing behind.
func New(o Options) (*Agent, error) {
	a := &Agent{options: o, cfg: o.Config, log: o.Log}
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
	a.notifier = systemd.NewNotifier(o.Getenv, o.Unsetenv)
	kept, err := systemd.PassedFiles(o.Getenv, o.Unsetenv)
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
	if a.policies, err = newPolicies(a.cfg, machine.HostName, o.Version); err != nil {
		return err
	}
	a.node = a.policies.node.Name

	stateFile := filepath.Join(a.cfg.State.Directory, "state.db")
	if a.state, err = state.Open(stateFile, a.log); err != nil {
		return err
	}
	a.defers("state", a.state.Close)
	if a.listener, err = api.Listen(a.cfg.API.Socket); err != nil {
		return err
	}
	a.defers("api socket", func() error {
		if err := a.listener.Close(); !errors.Is(err, net.ErrClosed) { // by the server
			return err
		}
		return nil
	})

	a.metrics = newMetrics(a)
	if a.runtimes, err = newRuntimes(a.cfg.Runtimes, a.metrics.runtimeCall, a.log); err != nil {
		return err
	}
	a.defers("runtimes", a.runtimes.set.Close)
	a.logind = systemd.NewLogind(systemd.LogindOptions{Notifier: a.notifier, Kept: kept, Log: a.log})
	a.defers("logind", a.logind.Close)
	a.manager = systemd.NewManager("")
	a.owners = newOwners(a.cfg, a.otherOwners)

	if err := a.buildControlPlane(stateFile, controlplane.Identity{MachineID: machine.MachineID, SystemUUID: machine.SystemUUID}); err != nil {
		return err
	}
	if err := a.buildGuard(machine.BootID); err != nil {
		return err
	}
	a.buildReporter(reader, machine)
	if err := a.checkReserved(a.policies.node); err != nil {
		return err
	}
	if err := a.buildCollectors(); err != nil {
		return err
	}
	a.buildLoops()
	return nil
}

func (a *Agent) buildControlPlane(stateFile string, holder controlplane.Identity) (err error) {
	a.client, err = embedded.New(a.state.Bucket(embedded.BucketName), stateFile, time.Now, a.log)
	if err != nil {
		return err
	}
	a.defers("control plane", a.client.Close)
	a.recorder = controlplane.NewRecorder(a.client, a.node, time.Now, a.log)
	a.kept = a.state.Bucket("agent")
	a.restoreEvents()
	return a.buildKeeper(holder)
}

func (a *Agent) buildGuard(bootID string) (err error) {
	a.boot = boot(bootID, a.manager, a.log)
	a.journal = journal.Open(journalFile(a.cfg), a.boot, a.log)
	a.guard, err = shutdown.New(shutdown.Options{
		Phases:    a.policies.phases,
		Rules:     a.policies.rules,
		Runtime:   a.runtimes.guarded(),
		Journal:   a.journal,
		Log:       a.log,
		Inhibitor: a.logind,
		Reporter:  shutdownReporter{a},
		Delegated: a.delegated,
		Notify:    a.shutdownChanged,
		Beat:      func(err error) { a.guarding.beat(err) },
	})
	return err
}

// boot names the present boot. A soft-reboot keeps the kernel's boot ID, but not
// the service manager's start.
func boot(bootID string, manager *systemd.Manager, log *slog.Logger) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	started, err := manager.StartedAt(ctx)
	if err != nil {
		if !errors.Is(err, systemd.ErrNotSystemd) {
			log.Warn("the service manager's start is unknown: a soft-reboot may go unnoticed", "error", err)
		}
		return bootID
	}
	return fmt.Sprintf("%s@%d", bootID, started.Unix())
}

// LastShutdown reads how the last shutdown went from the state folder, for a
// host whose agent does not run; nil if nothing is known of one.
func LastShutdown(cfg config.Config, log *slog.Logger) (*journal.Record, error) {
	reader, err := probe.New("/")
	if err != nil {
		return nil, err
	}
	machine, _ := reader.Machine() // the boot ID is all that counts here
	record, err := journal.Peek(journalFile(cfg), boot(machine.BootID, systemd.NewManager(""), log))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return record, err
}

func journalFile(cfg config.Config) string {
	return filepath.Join(cfg.State.Directory, "shutdown.json")
}

func (a *Agent) buildReporter(reader *probe.Reader, machine probe.Machine) {
	a.facts = &facts{
		reader:     reader,
		nodeFolder: existing(a.cfg.State.Directory),
		runtimes:   a.runtimes,
		guard:      a.guard.Status,
		guardFacts: a.guardFacts,
		maxImages:  func() int { return a.config().Status.MaxImages },
		machine:    machine,
		machineAt:  time.Now(),
		network:    probe.Addresses(),
	}
	a.reporter = newReporter(&reporter{
		client:   a.client,
		recorder: a.recorder,
		facts:    a.facts,
		options:  a.nodeOptions,
		update:   time.Duration(a.cfg.Status.UpdateInterval),
		report:   time.Duration(a.cfg.Status.ReportInterval),
		takeover: a.cfg.Node.Takeover,
		mine:     func() bool { mine, _, _ := a.owners.mine(jobNode); return mine },
		boot:     a.boot,
		store:    a.kept,
		cordons:  newCordons(a.kept, a.log),
		named:    a.keeper.SetOwner,
		log:      a.log.With("component", "status"),
		observe:  a.metrics.statusWrite,
		count:    a.metrics.transition,
	})
}

// checkReserved refuses to keep more for the system than there is.
func (a *Agent) checkReserved(o status.Options) error {
	ctx, cancel := context.WithTimeout(context.Background(), factsTimeout)
	defer cancel()
	return status.CheckReserved(a.facts.measure(ctx, nil), o.Reserved, o.Pressure)
}

func (a *Agent) buildCollectors() (err error) {
	a.tracker, err = lastused.New(lastused.Options{
		Store:    a.state.Bucket("lastused"),
		Runtimes: func() []lastused.Runtime { return members[lastused.Runtime](a.runtimes.set) },
		Observe:  func(err error) { a.loop("last-used").beat(err) },
		Log:      a.log.With("component", "last-used"),
	})
	if err != nil {
		return err
	}
	a.survey = &collect.Survey{
		Runtimes:      func() []collect.Runtime { return members[collect.Runtime](a.runtimes.set) },
		Meter:         &collect.Statfs{},
		Uses:          a.tracker,
		ProtectedPods: a.protectedPods,
	}
	a.images, err = collect.NewImages(a.policies.gc.Images, collect.Options{
		Survey:   a.survey,
		Interval: time.Duration(a.cfg.ImageGC.Interval),
		Observe:  func(r collect.Report) { a.collected("image-gc", r) },
		Log:      a.log.With("component", "image-gc"),
	})
	if err != nil {
		return err
	}
	a.dead, err = collect.NewContainers(a.policies.gc.Containers, collect.Options{
		Survey:   a.survey,
		Interval: time.Duration(a.cfg.ContainerGC.Interval),
		Observe:  func(r collect.Report) { a.collected("container-gc", r) },
		Log:      a.log.With("component", "container-gc"),
	})
	return err
}

// members are the runtimes of a set in the words of a room that uses them.
func members[R any](set *runtime.Set) []R {
	var list []R
	for _, m := range set.Members() {
		list = append(list, m.(R)) // a runtime.Runtime has all that rooms ask for
	}
	return list
}

// collected takes in the report of a run.
func (a *Agent) collected(name string, r collect.Report) {
	a.metrics.collection(name, r)
	var err error
	if len(r.Errors) > 0 {
		err = errors.New(r.Errors[0])
	}
	a.loop(name).beat(err)
	node := controlplane.NodeReference(a.node)
	if len(r.Removed) > 0 && name == "image-gc" {
		a.recorder.Record(node, corev1.EventTypeNormal, "ImagesCollected", fmt.Sprintf("removed %d images, freed %d bytes of %d asked for", len(r.Removed), r.FreedBytes, r.RequestedBytes))
	}
	if len(r.Warnings) > 0 { // whose figures differ each time, which would make each an Event of its own
		a.recorder.Record(node, corev1.EventTypeWarning, "CollectionIncomplete", name+" did not reach its goal; `hostler gc plan` tells what keeps it")
	}
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
