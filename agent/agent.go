// Package agent is the daemon. It builds the parts in one visible order, keeps their loops running,
// and handles signals.
//
// It owns which jobs hostler does on this host, the health of the loops, and the order of start and
// stop. It makes no decisions about pods, images or conditions. Package backend answers requests.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"hostler.io/hostler/agent/backend"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/probe"
)

// Options is the environment of the agent's process.
type Options struct {
	Config   config.Loaded
	File     string                        // path of the configuration file; empty for the default path
	Reload   func() (config.Loaded, error) // reads the configuration again, and logs nothing
	Version  string
	Getenv   func(string) string
	Unsetenv func(string) error
	Log      *slog.Logger
	Level    *slog.LevelVar // of Log
}

// Agent is a running or a half-built agent.
type Agent struct {
	log      *slog.Logger
	version  string
	settings *settings.Settings
	changed  loop.Signal // triggers a check of the host now
	loops    loop.Set
	metrics  *metrics.Metrics

	host     host
	naming   naming
	kept     kept
	plane    plane
	owners   *owner.Owners // which program does each job
	gc       collectors
	reports  reports
	shutdown stopping
	serving  serving

	cleanups []cleanup
}

// serving has the parts that answer requests.
type serving struct {
	listener net.Listener  // of the socket
	files    *listen.Files // of the network listener; nil without one
	metrics  http.Handler  // counters and current state
	network  loop.Set      // the loops that serve over the network
	backend  *backend.Backend
	reloader *reloader
}

// cleanup undoes one step of New.
type cleanup struct {
	name string
	do   func() error
}

// New builds the agent up to its open API socket, and starts nothing. If it fails, it releases
// everything that it opened.
func New(o Options) (*Agent, error) {
	a := &Agent{
		log: o.Log, version: o.Version, changed: loop.NewSignal(), metrics: metrics.New(),
		shutdown: stopping{board: &shutdown.Board{}, wake: loop.NewSignal()},
	}
	warnIgnored(a.log, o.Config.Ignored)
	if err := a.build(o); err != nil {
		if closing := a.close(); closing != nil {
			a.log.Warn("cleanup after failed start incomplete", "error", closing)
		}
		return nil, err
	}
	return a, nil
}

// build creates the parts in dependency order.
func (a *Agent) build(o Options) (err error) {
	cfg := o.Config.Config
	if a.host, err = newHost(o); err != nil {
		return err
	}
	policies, err := open.NewPolicies(cfg, a.host.machine.HostName, o.Version)
	if err != nil {
		return err
	}
	a.settings = settings.New(cfg, policies, settings.Source{File: o.File, Read: o.Reload})
	a.naming = naming{reader: a.host.reader, settings: a.settings, since: time.Now()}
	if a.kept, err = newKept(cfg, a.host, a.log); err != nil {
		return err
	}
	a.defers("state", a.kept.folder.Close)
	if a.serving.listener, err = listenOn(cfg.API.Socket, a.defers); err != nil {
		return err
	}
	a.serving.files = open.Files(cfg.API, a.log)
	if err := a.host.openRuntimes(cfg.Runtimes, a.metrics, open.Units{Manager: a.host.manager}, a.log); err != nil {
		return err
	}
	a.defers("runtimes", a.host.runtimes.Close)
	a.defers("logind", a.host.logind.Close)

	if err := a.buildControlPlane(cfg); err != nil {
		return err
	}
	a.owners, a.plane.past = newOwners(a.naming, a.plane.Client, a.host, a.kept.notes, a.log)
	return a.assemble(cfg, o.Level)
}

// assemble creates the parts that need a control plane.
func (a *Agent) assemble(cfg config.Config, level *slog.LevelVar) error {
	if err := a.buildCollectors(cfg); err != nil {
		return err
	}
	if err := a.buildReports(cfg); err != nil {
		return err
	}
	if err := a.buildShutdown(cfg); err != nil {
		return err
	}
	a.buildSelfDrain()
	if err := a.buildReboots(cfg); err != nil {
		return err
	}
	if err := a.checkReserved(a.settings.Node()); err != nil {
		return err
	}
	a.fillLoops(cfg)
	a.buildBackend(level)
	return nil
}

// checkReserved returns an error if the host has less than node.reserved.
func (a *Agent) checkReserved(o status.Options) error {
	return status.CheckReserved(a.measure(), o.Reserved, o.Pressure)
}

// missingAddresses returns an error that names the configured addresses that the host does not
// have.
func (a *Agent) missingAddresses(o status.Options) error {
	return status.MissingAddresses(probe.Addresses(), o.Addresses)
}

// measure measures the host, with a time limit.
func (a *Agent) measure() status.Facts {
	ctx, cancel := context.WithTimeout(context.Background(), gather.ProbeTimeout)
	defer cancel()
	return a.host.facts.Measure(ctx, nil)
}

// listenOn opens the API's socket.
func listenOn(socket string, defers func(string, func() error)) (net.Listener, error) {
	listener, err := listen.Socket(socket)
	if err != nil {
		return nil, err
	}
	defers("api socket", func() error {
		if err := listener.Close(); !errors.Is(err, net.ErrClosed) { // already closed by the server
			return err
		}
		return nil
	})
	return listener, nil
}

// node is the Node's name.
func (a *Agent) node() string { return a.settings.Node().Name }

// config is the effective configuration.
func (a *Agent) config() config.Config { return a.settings.Config() }

// defers registers the function that undoes a step of New.
func (a *Agent) defers(name string, do func() error) {
	a.cleanups = append(a.cleanups, cleanup{name, do})
}

// close undoes the steps of New in reverse order.
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
