package agent

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/conditions"
)

// fileTime bounds a check of the files that request a reboot.
const fileTime = 2 * time.Second

// buildReboots creates the controller that reboots the host, if reboots are enabled.
func (a *Agent) buildReboots(cfg config.Config) (err error) {
	if !cfg.Reboot.Enabled {
		a.kept.journal.UndoDrains(journal.TriggerReboot) // nothing else undoes a reboot that was in progress
		return nil
	}
	s := &a.shutdown
	s.rebootChecks, err = conditions.New(conditions.Options{
		Policy: cfg.Reboot.ChecksPolicy(),
		// Each round reads their results.
		Changed: func() { s.rebooter.Reconfigured() }, Appeared: func(conditions.Program, string) {},
		Observe: func(conditions.Program, conditions.Result) {},
		Log:     a.log.With("component", "reboot-checks"),
	})
	if err != nil {
		return err
	}
	lock, err := a.rebootLock(cfg)
	if err != nil {
		return err
	}
	group := ""
	if _, is := lock.(reboot.Server); is {
		group = cfg.Reboot.Group
	}
	node := controlplane.NodeReference(a.node())
	files := &reboot.Bounded{Find: func() (wanted, undecided []reboot.Finding) {
		return reboot.Sentinels(a.config().Reboot.Sentinels, time.Now().Add(-uptime()))
	}}
	s.rebooter = reboot.New(reboot.Options{
		Node: a.node(), Group: group, Boot: a.host.machine.BootID, Policy: func() reboot.Policy { return a.settings.Policies().Reboot }, Host: rebootHost{a, files}, Lock: lock,
		Client: a.plane.Client, Machine: identity(a.host.machine),
		Store: a.kept.folder.File("reboot"), Flush: a.kept.flush, Now: time.Now,
		Announce: func(kind, reason, message string) { a.plane.recorder.Record(node, kind, reason, message) },
		Log:      a.log,
	})
	return nil
}

// rebootLock returns the lock that decides when it is the turn of this host.
func (a *Agent) rebootLock(cfg config.Config) (reboot.Lock, error) {
	switch {
	case cfg.Reboot.Lock.FleetLock != "":
		base, err := url.Parse(cfg.Reboot.Lock.FleetLock)
		if err != nil {
			return nil, err
		}
		return reboot.NewFleetLock(base, a.node(), cfg.Reboot.Group)
	case a.plane.Type() == embedded.Type:
		return reboot.Alone{}, nil
	}
	return reboot.Server{}, nil
}

// rebootHost is the host for package reboot.
type rebootHost struct {
	a     *Agent
	files *reboot.Bounded
}

// errFilesHang is why files were not checked.
var errFilesHang = errors.New("the file system does not answer")

// Wanted implements reboot.Host.
func (h rebootHost) Wanted() (wanted, undecided []reboot.Finding) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), fileTime, errFilesHang)
	defer cancel()
	files, unread, err := h.files.Check(ctx)
	if err != nil {
		unread = []reboot.Finding{{Source: strings.Join(h.a.config().Reboot.Sentinels, ", "), Message: err.Error(), Hint: "check the file systems of reboot.sentinels"}}
	}
	wanted, undecided = reboot.Judge(h.a.shutdown.rebootChecks.Checks(), h.a.shutdown.rebootChecks.Faults())
	return append(files, wanted...), append(unread, undecided...)
}

// Drain implements reboot.Host. A kubelet would start its pods again, and stops them at the shutdown.
func (h rebootHost) Drain(ctx context.Context, cause string, began time.Time, note func(time.Time)) (journal.Record, error) {
	if h.kubelet() {
		return journal.Record{Graceful: true}, nil
	}
	return h.a.shutdown.drainer.DrainForCause(ctx, maintenance.Order{Trigger: journal.TriggerReboot, Cause: cause, Began: began}, note)
}

// Undo implements reboot.Host.
func (h rebootHost) Undo(ctx context.Context, began time.Time) error {
	h.a.shutdown.drainer.Undo(ctx, maintenance.Order{Began: began})
	return ctx.Err()
}

// Cordon implements reboot.Host.
func (h rebootHost) Cordon(ctx context.Context) error {
	return h.a.shutdown.drainer.CordonToReboot(ctx)
}

// Uncordon implements reboot.Host.
func (h rebootHost) Uncordon(ctx context.Context) error {
	return h.a.shutdown.drainer.UncordonAfterReboot(ctx)
}

// kubelet reports whether a kubelet runs the pods.
func (h rebootHost) kubelet() bool {
	mine, other, _ := h.a.owners.Mine(owner.Node)
	return !mine && other.Name == owner.Kubelet && !other.Absent
}

// EmptiedByServer implements reboot.Host. While a kubelet is restarted, its pods are still protected by budgets.
func (h rebootHost) EmptiedByServer() bool {
	mine, other, _ := h.a.owners.Mine(owner.Node)
	return !mine && other.Name == owner.Kubelet && h.a.plane.Type() == kubernetes.Type && h.a.config().Reboot.Lock.FleetLock == ""
}

// HasNode implements reboot.Host.
func (h rebootHost) HasNode() bool {
	mine, other, _ := h.a.owners.Mine(owner.Node)
	return !h.a.plane.left.Gone() && (mine || other.Name == owner.Kubelet && h.a.plane.Type() == kubernetes.Type)
}

// NotStarted implements reboot.Host.
func (h rebootHost) NotStarted() (names []string) {
	for _, r := range h.a.kept.journal.Restarts() {
		if r.Outcome == "" || r.Outcome == journal.RestartFailed {
			names = append(names, r.Name)
		}
	}
	return names
}

// GoingDown implements reboot.Host.
func (h rebootHost) GoingDown() bool {
	state := h.a.shutdown.guard.Status().State
	return state == shutdown.Draining || state == shutdown.Released
}

// Reboot implements reboot.Host.
func (h rebootHost) Reboot(ctx context.Context) error {
	return reboot.Run(ctx, strings.Fields(h.a.config().Reboot.Command))
}
