package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
	"hostler.io/hostler/systemd"
)

// fileTime bounds a check of the files that request a reboot.
const fileTime = 2 * time.Second

// buildReboots creates the controller that reboots the host, if reboots are enabled. Otherwise, its only task is to
// end what an earlier configuration has begun.
func (a *Agent) buildReboots(cfg config.Config) (err error) {
	s := &a.shutdown
	o, err := a.rebootOptions(cfg)
	if err != nil {
		return err
	}
	if !cfg.Reboot.Enabled {
		o.Change.Disabled = true
		s.rebootEnd = reboot.New(o)
		a.kept.journal.UndoDrains(journal.TriggerReboot)
		return nil
	}
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
	s.rebooter = reboot.New(o)
	return nil
}

// nodeStored reports the Node as the control plane has it to the controller of reboots.
func (a *Agent) nodeStored(node *corev1.Node) {
	if c := a.shutdown.rebootController(); c != nil {
		c.Stored(node)
	}
}

// rebootOptions returns the options of the controller.
func (a *Agent) rebootOptions(cfg config.Config) (reboot.Options, error) {
	id := a.rebootLockID(cfg)
	lock, err := a.rebootLock(id)
	if err != nil {
		return reboot.Options{}, err
	}
	group := ""
	if _, is := lock.(reboot.Server); is {
		group = cfg.Reboot.Group
	}
	node, file := controlplane.NodeReference(a.node()), a.kept.folder.File("reboot")
	files := &reboot.Bounded{Find: func() (wanted, undecided []reboot.Finding) {
		return reboot.Sentinels(a.config().Reboot.Sentinels, time.Now().Add(-uptime()))
	}}
	return reboot.Options{
		Node: a.node(), Group: group, Boot: a.host.machine.BootID, Policy: func() reboot.Policy { return a.settings.Policies().Reboot }, Host: rebootHost{a, files, time.Now()}, Lock: lock,
		Change: reboot.Change{ID: id, Open: a.rebootLock},
		Client: a.plane.Client, Machine: identity(a.host.machine),
		Store: file, Flush: file.Flush, Now: time.Now,
		Announce: func(kind, reason, message string) { a.plane.recorder.Record(node, kind, reason, message) },
		Log:      a.log,
	}, nil
}

// rebootLockID identifies the slot that this host needs; zero if it needs none.
func (a *Agent) rebootLockID(cfg config.Config) reboot.LockID {
	switch {
	case cfg.Reboot.Lock.FleetLock != "":
		return reboot.LockID{FleetLock: cfg.Reboot.Lock.FleetLock, Group: cfg.Reboot.Group, Host: a.node(), PasswordFile: cfg.Reboot.Lock.PasswordFile}
	case a.plane.Type() == embedded.Type:
		return reboot.LockID{}
	}
	return reboot.LockID{Group: cfg.Reboot.Group}
}

// rebootLock returns the lock that decides when it is the turn of this host. A slot that was requested before the
// password of its server was configured is given back with that password.
func (a *Agent) rebootLock(id reboot.LockID) (reboot.Lock, error) {
	if now := a.config().Reboot.Lock; id.FleetLock == now.FleetLock {
		id.PasswordFile = now.PasswordFile
	}
	switch {
	case id.FleetLock != "":
		base, err := url.Parse(id.FleetLock)
		if err != nil {
			return nil, err
		}
		return reboot.NewFleetLock(base, id)
	case id == reboot.LockID{}:
		return reboot.Alone{}, nil
	}
	return reboot.Server{}, nil
}

// rebootHost is the host for package reboot.
type rebootHost struct {
	a     *Agent
	files *reboot.Bounded
	built time.Time // start of the agent
}

// errFilesHang is why files were not checked.
var errFilesHang = errors.New("the file system does not answer")

// Wanted implements reboot.Host.
func (h rebootHost) Wanted() (wanted, undecided []reboot.Finding) {
	if h.a.shutdown.rebootChecks == nil { // reboots are disabled
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), fileTime, errFilesHang)
	defer cancel()
	files, unread, err := h.files.Check(ctx)
	if err != nil {
		for _, path := range h.a.config().Reboot.Sentinels {
			unread = append(unread, reboot.Finding{Source: path, Message: err.Error(), Hint: "check the file systems of reboot.sentinels", Pending: h.files.Pending()})
		}
	}
	wanted, undecided = reboot.Judge(h.a.shutdown.rebootChecks, time.Since(h.built))
	return append(files, wanted...), append(unread, undecided...)
}

// errUnqueried is why a drain has not started.
var errUnqueried = errors.New("the runtimes have not been queried since the agent started")

// Drain implements reboot.Host. A kubelet would start its pods again, and stops them at the shutdown. If the command
// that reboots the host cannot run, no pod is stopped for it. An agent that was restarted waits for its runtimes: it
// has no last list of pods, so that a list that is late would fail the drain.
func (h rebootHost) Drain(ctx context.Context, cause string, began time.Time, all bool, note func(time.Time) error) (journal.Record, error) {
	if err := reboot.Runnable(h.command()); err != nil {
		return journal.Record{}, err
	}
	if h.kubelet() {
		return journal.Record{Graceful: true}, nil
	}
	for _, queried := h.a.host.runtimes.Current(); !queried; _, queried = h.a.host.runtimes.Current() {
		if bounded.Sleep(ctx, 50*time.Millisecond) != nil {
			return journal.Record{}, errUnqueried
		}
	}
	return h.a.shutdown.drainer.DrainForCause(ctx, maintenance.Order{Trigger: journal.TriggerReboot, Cause: cause, Began: began, All: all}, note)
}

// Undo implements reboot.Host.
func (h rebootHost) Undo(ctx context.Context, began time.Time) error {
	_, err := h.a.shutdown.drainer.Undo(ctx, maintenance.Order{Began: began})
	return err
}

// rebooting reports whether a reboot by hostler is in progress, or whether that is not known.
func (s *stopping) rebooting() bool {
	c := s.rebootController()
	if c == nil {
		return false
	}
	r := c.Report()
	return r.Request == nil && r.Problem != "" || r.Request != nil && r.Step.NeedsSlot()
}

// rebootController returns the controller of reboots, also if its only task is to end one; nil if there is none.
func (s *stopping) rebootController() *reboot.Controller { return cmp.Or(s.rebooter, s.rebootEnd) }

// hasTurn reports whether the host has its turn to reboot, or may have it.
func (a *Agent) hasTurn() bool {
	c := a.shutdown.rebootController()
	return c != nil && c.HasTurn()
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

// NodeBlocked implements reboot.Host. Nobody owns the Node that is enabled while the host has no name.
func (h rebootHost) NodeBlocked() string {
	if _, other, _ := h.a.owners.Mine(owner.Node); other.Name == owner.None && h.a.config().Node.Enabled != config.Off {
		return other.Evidence
	}
	return ""
}

// Left implements reboot.Host. From the start of `hostler leave` on, the host must not rely on its Node.
func (h rebootHost) Left() bool {
	return h.a.plane.left.Gone() || h.a.plane.member.Reason() != ""
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

// Unknown implements reboot.Host.
func (h rebootHost) Unknown() string { return cmp.Or(h.a.unreadJournal(), h.a.kept.unknown()) }

// GoingDown implements reboot.Host.
func (h rebootHost) GoingDown() bool {
	state := h.a.shutdown.guard.Status().State
	return state == shutdown.Draining || state == shutdown.Released
}

// ShutdownPending implements reboot.Host.
func (h rebootHost) ShutdownPending(ctx context.Context, until time.Time) (string, error) {
	switch preparing, err := h.a.host.logind.Preparing(ctx); {
	case err != nil && !systemd.Absent(err):
		return "", err
	case preparing:
		return "logind is preparing a shutdown", nil
	}
	switch stopping, err := h.a.host.manager.Stopping(ctx); {
	case err != nil && !errors.Is(err, systemd.ErrNotSystemd):
		return "", err
	case stopping:
		return "systemd is shutting the host down", nil
	}
	kind, at, err := h.a.host.logind.Scheduled(ctx)
	switch {
	case err != nil && !systemd.Absent(err):
		return "", err
	case kind != "" && (until.IsZero() || !at.After(until)):
		return fmt.Sprintf("logind has scheduled a %s for %s", kind, at.Format(time.RFC3339)), nil
	}
	return "", nil
}

// refusalTime bounds the question to the guard.
const refusalTime = time.Second

// Held implements reboot.Host.
func (h rebootHost) Held() []reboot.Finding {
	states, queried := h.a.host.runtimes.Current()
	v := reboot.Verdicts{Unstored: h.a.kept.folder.Health().Message, Unqueried: !queried, NotReady: map[string]string{}, KeepsPods: h.kubelet()}
	for _, r := range slices.Concat(states, h.a.host.runtimes.Unreachable()) {
		if !r.Ready {
			v.NotReady[r.Name] = r.Message
		}
	}
	for _, c := range h.a.reports.reporter.Clones() {
		if c.Node == h.a.node() { // another name has a slot of its own
			v.Twin = c.Message(h.a.node())
		}
	}
	v.Unprotected, v.Unguarded = h.protection()
	ctx, cancel := context.WithTimeout(context.Background(), refusalTime)
	defer cancel()
	switch err := h.a.shutdown.guard.Refusal(ctx); {
	case err != nil && ctx.Err() != nil:
		v.Unasked = err.Error()
	case err != nil:
		v.Refusal = err.Error()
	}
	held := v.Held()
	if why := h.a.kept.unknown(); why != "" {
		held = append(held, reboot.Finding{Source: "state", Message: why})
	}
	return held
}

// protection returns why a shutdown would not wait for pods, or why that is not known yet; empty if it would.
func (h rebootHost) protection() (unprotected, unguarded string) {
	switch protected, reason, message := h.a.host.facts.Protected(h.a.shutdown.guard.Status()); {
	case reason == status.ReasonStarting, reason == status.ReasonNotMeasured:
		return "", message
	case !protected:
		return message, ""
	}
	return "", ""
}

// unprotected returns why a shutdown would not wait for pods, if a reboot in turn does not wait for the end of that.
func (h rebootHost) unprotected() string {
	if h.kubelet() {
		return ""
	}
	why, _ := h.protection()
	return why
}

// Reboot implements reboot.Host.
func (h rebootHost) Reboot(ctx context.Context) error {
	return reboot.Run(ctx, h.command())
}

func (h rebootHost) command() []string { return strings.Fields(h.a.config().Reboot.Command) }
