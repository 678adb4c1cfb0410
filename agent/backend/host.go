package backend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/inspect"
	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/agent/selfdrain"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/reboots"
	"hostler.io/hostler/systemd"
)

// Host answers requests about the state of the host and the agent.
type Host struct {
	Version     string
	Settings    *settings.Settings
	Registers   *Registration
	Collects    *Collections
	Runtimes    *discovery.Runtimes
	Guard       *shutdown.Guard
	Facts       *gather.Facts
	Checks      *conditions.Runner
	Name        func() *doctor.Name // check of the host name and the Node's name
	Loops       loop.Set
	RebootsSeen *reboots.Ledger
	Uptime      func() time.Duration // how long the kernel has run
	State       *statefile.Folder
	Files       *listen.Files // files of the network listener; nil without one
	Logind      *systemd.Logind
	SelfDrains  func() []selfdrain.Upcoming
	Reboots     *reboot.Controller // nil unless reboots are enabled
}

// scheduledBound bounds how long logind may take to answer whether a shutdown is scheduled.
const scheduledBound = 300 * time.Millisecond

// scheduled is the shutdown that logind begins later; nil if there is none, or if logind does not
// answer.
func (h *Host) scheduled(ctx context.Context) *api.ScheduledShutdown {
	ctx, cancel := context.WithTimeout(ctx, scheduledBound)
	defer cancel()
	kind, at, err := h.Logind.Scheduled(ctx)
	if err != nil || kind == "" {
		return nil
	}
	return &api.ScheduledShutdown{Kind: kind, At: at}
}

// Status returns the state of the host and the agent. If a runtime does not answer in time, its
// data is missing and the runtime is shown as not ready.
func (h *Host) Status(ctx context.Context) (api.Status, error) {
	node, facts, connected, written := h.Registers.Reporter.Current()
	guard := h.Guard.Status()
	s := api.Status{
		Version:  h.Version,
		Runtimes: []api.Runtime{},
		Owners:   h.Registers.Owners.All(),
		Topology: status.NewTopology(facts),
		Shutdown: guard,
		Loops:    h.loops(written, h.Registers.Keeper.Stats().LastError, guard.Trouble),
		Reboots:  h.RebootsSeen.Status(h.Uptime()),
		State:    api.State{Path: h.Settings.Config().State.Directory},

		Configuration:    h.Settings.Compare(),
		CustomConditions: h.customConditions(),
		Network:          h.network(),
	}
	if c := doctor.NodeName(doctor.Facts{Name: h.name()}); c.Status != "" && c.Status != doctor.OK {
		c.Name = doctor.NodeNameCheck
		s.NodeName = &c
	}
	h.Registers.status(&s, node, connected, written)
	s.Addresses = h.choices(node, facts)
	for _, r := range append(h.Runtimes.Named(), h.Runtimes.Unreachable()...) {
		s.Runtimes = append(s.Runtimes, api.Runtime{Name: r.Name, Version: r.Version, Endpoint: r.Endpoint, Ready: r.Ready, Message: r.Message})
	}
	if options := h.Settings.Node(); node != nil {
		if err := status.CheckReserved(facts, options.Reserved, options.Pressure); err != nil {
			s.Shortage = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		s.AddressMissing = inspect.AddressMissing(node.Status.Conditions, facts, options.Addresses)
		facts.Runtimes = h.Runtimes.Named() // with the names of their services
		s.NextSteps = status.NextSteps(node.Status.Conditions, facts)
	}
	health := h.State.Health()
	s.State.Persisted, s.State.Message = health.Persisted, health.Message
	if health.SetAside != "" {
		s.State.Message += "an unusable state file was set aside as " + health.SetAside
	}
	s.ScheduledShutdown, s.SelfDrains = h.scheduled(ctx), h.SelfDrains()
	if h.Reboots != nil {
		r := h.Reboots.Report()
		s.Reboot = &r
	}
	h.Collects.status(ctx, h.RebootsSeen.Began(h.Uptime()), &s)
	return s, nil
}

// choices returns why this host has chosen each address of its Node. Addresses that a cloud
// controller manager has chosen are left out.
func (h *Host) choices(node *corev1.Node, facts status.Facts) []status.Choice {
	list := []status.Choice{}
	if node == nil {
		return list
	}
	options := h.Settings.Node()
	choices, _ := status.Choose(facts.Network, options.Addresses, options.Name) // NetworkUnavailable reports missing addresses
	for _, c := range choices {
		if slices.Contains(node.Status.Addresses, corev1.NodeAddress{Type: c.Type, Address: c.Address}) {
			list = append(list, c)
		}
	}
	return list
}

// customConditions returns the custom checks of the administrator and the faults of their files.
func (h *Host) customConditions() api.CustomConditions {
	c := api.CustomConditions{Directory: h.Checks.Folder(), Checks: h.Checks.Checks(), Faults: h.Checks.Faults()}
	if c.Faults == nil {
		c.Faults = []conditions.Fault{}
	}
	beside := h.Registers.Owners.Beside()
	for i, check := range c.Checks {
		c.Checks[i].LocalOnly = beside && !check.Temporary && !status.IsOwn(check.Type)
	}
	return c
}

// network returns how the API is served over the network; nil if it is not.
func (h *Host) network() *api.Network {
	if h.Files == nil {
		return nil
	}
	cfg := h.Settings.Config()
	n := &api.Network{Listen: cfg.API.Listen, Certificate: cfg.API.TLS.Certificate}
	if !cfg.Metrics.Loopback() {
		n.Metrics = cfg.Metrics.Listen
	}
	if err := h.Files.Refresh(); err != nil {
		n.Message = err.Error()
	}
	if _, ends := h.Files.Validity(); !ends.IsZero() {
		n.Ends = &ends
	}
	return n
}

// health returns the current health of all loops.
func (h *Host) health() []loop.Health {
	now := time.Now()
	list := make([]loop.Health, 0, len(h.Loops))
	for _, l := range h.Loops {
		list = append(list, l.Health(now))
	}
	return list
}

// loops returns the health of all loops, with the cause of each error. written and renewed are the
// errors of the last Node write and Lease renewal. trouble is why the guard is not armed.
func (h *Host) loops(written, renewed, trouble error) []api.Loop {
	list := make([]api.Loop, len(h.Loops))
	for i, health := range h.health() {
		err := h.Loops[i].Err()
		list[i] = api.Loop{Health: health, Runtimes: runtime.Failed(err)}
		_, serving := errors.AsType[*listen.FilesError](err)
		switch {
		case err == nil:
		case errors.Is(err, trouble):
			list[i].Cause = api.CauseShutdown
		case errors.Is(err, written):
			list[i].Cause = h.Registers.cause(err, api.CauseNode)
		case errors.Is(err, renewed):
			list[i].Cause = h.Registers.cause(err, api.CauseLease)
		case errors.Is(err, controlplane.ErrUnavailable):
			list[i].Cause = h.Registers.cause(err, "")
		case serving:
			list[i].Cause = api.CauseTLS
		}
	}
	return list
}

// MetricsState returns the current state for the metrics.
func (h *Host) MetricsState(recorder *controlplane.Recorder) metrics.State {
	guard, lease := h.Guard.Status(), h.Registers.Keeper.Stats()
	s := metrics.State{
		Version:       h.Version,
		LeaseRenewed:  lease.Since(),
		Loops:         h.health(),
		Shutdown:      guard,
		Runtimes:      map[string]bool{},
		EventsDropped: recorder.Stats().Dropped,
		ReloadRefused: h.Settings.Refused(),
		CgroupVersion: h.Facts.Machine().CgroupVersion,
		Reboots:       h.RebootsSeen.Status(0).Counts,
	}
	s.Protected, _, _ = h.Facts.Protected(guard)
	if node, _, _, _ := h.Registers.Reporter.Current(); node != nil {
		s.Conditions = node.Status.Conditions
	}
	if h.Reboots != nil {
		s.RebootStep = controlplane.RebootDone
		if r := h.Reboots.Report(); r.Request != nil {
			s.RebootStep = r.Step
		}
	}
	var last runs.Report
	if report, ran := h.Collects.Unused.Last(); ran {
		last = report
		s.Images = &last
	}
	for _, r := range h.Runtimes.Named() {
		s.Runtimes[r.Name] = r.Ready
	}
	return s
}

// name returns the check of the host name and the Node's name.
func (h *Host) name() *doctor.Name {
	n := h.Name()
	if n == nil {
		return nil
	}
	node, _, _, failed := h.Registers.Reporter.Current()
	refused := failed != nil && !errors.Is(failed, controlplane.ErrUnavailable)
	waits := h.Registers.Reporter.NodeState().Waits != ""
	n.Unregistered = node != nil && node.UID == "" && (refused || waits)
	return n
}
