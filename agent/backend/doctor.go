package backend

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/inspect"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/systemd"
)

// Checkup runs `hostler doctor` in the agent.
type Checkup struct {
	Host    *Host
	Network loop.Set // the loops that serve the API and metrics
	Logind  *systemd.Logind
	Manager *systemd.Manager
	Log     *slog.Logger

	files bounded.Files // that users own
}

// Doctor collects the facts of this host and runs all checks. It changes nothing.
func (d *Checkup) Doctor(ctx context.Context) (doctor.Report, error) {
	h, cfg := d.Host, d.Host.Settings.Config()
	guard := h.Guard.Status()
	states, queried := h.Runtimes.Current()
	f := doctor.Facts{
		Agent:  doctor.Agent{Answers: true, PID: os.Getpid(), Version: h.Version},
		Phases: h.Settings.Policies().Phases, StopFirst: cfg.Shutdown.StopFirst,
		Guard:         &guard,
		Runtimes:      inspect.Runtimes(states, queried, h.Runtimes),
		Last:          guard.Last,
		State:         doctor.CheckState(cfg.State.Directory),
		Configuration: h.Settings.Compare(),
		Name:          h.name(),
		Network:       d.network(),
		Reboots:       doctor.Reboots{Enabled: cfg.Reboot.Enabled},
	}
	if h.Reboots != nil {
		r := h.Reboots.Report()
		f.Reboots.Problem, f.Reboots.Broken = r.Problem, brokenChecks(r)
	}
	custom := h.customConditions()
	f.Conditions = inspect.Conditions(custom.Directory, custom.Checks, custom.Faults)
	if health := h.State.Health(); health.Message != "" {
		f.State.Problem = health.Message
	}
	f.Protection.Protected, f.Protection.Reason, f.Protection.Message = h.Facts.Protected(guard)
	d.conditions(&f.Machine)
	var queries sync.WaitGroup
	queries.Go(func() { d.controlPlane(ctx, &f) })
	queries.Go(func() { d.measure(ctx, &f) })
	queries.Go(func() { f.Server = inspect.Server(ctx) })
	doctor.Sources{Logind: d.Logind, Manager: d.Manager, Root: "/", Proc: "/proc", Files: &d.files}.Gather(ctx, &f)
	queries.Wait()
	return doctor.Examine(f), nil
}

// controlPlane adds the state of the control plane, unless it is the embedded one.
func (d *Checkup) controlPlane(ctx context.Context, f *doctor.Facts) {
	h, cfg := d.Host, d.Host.Settings.Config()
	node := h.Settings.Node().Name
	switch plugin := h.Registers.ControlPlane.Plugin; {
	case cfg.ControlPlane.Type == kubernetes.Type:
		current, waits := h.Registers.certificate()
		c := inspect.Cluster(ctx, cfg, node, h.Version, current, waits, d.Log)
		var s doctor.StoreState
		h.Registers.facts(&s)
		c.Managed, c.WriteErr, c.NotWritten, c.Drift, c.LeaseExpired = s.Managed, s.WriteErr, s.NotWritten, s.Drift, s.LeaseExpired
		f.Cluster = c
	case cfg.ControlPlane.Type == etcd.Type:
		f.Etcd = inspect.Etcd(ctx, cfg, node, h.Version)
		h.Registers.facts(&f.Etcd.StoreState)
	case plugin != nil:
		f.Plugin = inspect.Plugin(ctx, plugin, node)
		h.Registers.facts(&f.Plugin.StoreState)
	}
}

// conditions adds the faults in the last known conditions of the Node.
func (d *Checkup) conditions(m *doctor.Machine) {
	if node, facts, _, _ := d.Host.Registers.Reporter.Current(); node != nil {
		m.Pressures, m.Network = inspect.NodeConditions(node.Status.Conditions, facts, d.Host.Settings.Node().Addresses)
	}
}

// measure adds the filesystems of images and what is removed on request only. It also adds containers
// that were not started, and ignored labels. A runtime that does not answer in time has its own check.
func (d *Checkup) measure(ctx context.Context, f *doctor.Facts) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	c := d.Host.Collects
	facts, err := c.Survey.Facts(ctx, gc.Options{Images: true})
	now := c.planned(facts)
	f.Collection = c.waiting(facts, now)
	f.Runtimes.NotStarted = notStarted(facts.Pods, d.Host.RebootsSeen.Began(d.Host.Uptime()), f.Guard.History())
	f.Runtimes.Ignored = plan.Ignored(f.Phases, facts.Pods, d.Host.Settings.Policies().Rules)
	if err != nil {
		f.Machine.ImagesUnknown = err.Error()
	}
	for _, fs := range now.Filesystems {
		f.Machine.ImageFilesystems = append(f.Machine.ImageFilesystems, fs.FilesystemStatus)
	}
	if cfg := d.Host.Settings.Config().ImageGC; c.Owners.Has(owner.ImageGC) {
		f.Machine.HighPercent, f.Machine.LowPercent = cfg.HighThresholdPercent, cfg.LowThresholdPercent
	}
}

// network adds the errors of the loops that serve, such as an address in use.
func (d *Checkup) network() *doctor.Network {
	n := inspect.Network(d.Host.Settings.Config().API, d.Host.Files)
	if n == nil {
		return nil
	}
	for _, l := range d.Network {
		err := l.Err()
		if _, files := errors.AsType[*listen.FilesError](err); err != nil && !files && n.Err == nil { // inspect.Network has read the files just now: a FilesError of a loop is older
			n.Err = err
		}
	}
	return n
}
