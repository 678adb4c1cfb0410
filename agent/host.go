package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/conditions"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/status/reboots"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/notify"
)

// host has the facts of the host and their sources.
type host struct {
	reader   *probe.Reader
	machine  probe.Machine // read at the start
	boot     string        // ID of the current boot
	notifier *notify.Notifier
	manager  *systemd.Manager
	logind   *systemd.Logind

	runtimes *discovery.Runtimes
	network  *gather.Network
	checks   *conditions.Runner // custom checks of the administrator
	facts    *gather.Facts
}

// newHost reads the machine facts. It does not connect to anything.
func newHost(o Options) (h host, err error) {
	h.notifier = notify.New(o.Getenv, o.Unsetenv)
	kept, err := notify.PassedFiles(o.Getenv, o.Unsetenv)
	if err != nil {
		o.Log.Warn("descriptors kept by the service manager", "error", err)
	}
	if h.reader, err = probe.New("/"); err != nil {
		return h, err
	}
	if h.machine, err = h.reader.Machine(); err != nil {
		o.Log.Warn("cannot read all machine facts", "error", err)
	}
	h.manager = systemd.NewManager("")
	h.logind = systemd.NewLogind(systemd.LogindOptions{Notifier: h.notifier, Kept: kept, Log: o.Log})
	h.boot = open.Boot(h.machine.BootID, h.manager, o.Log)
	return h, nil
}

func (h *host) openRuntimes(cfg config.Runtimes, m *metrics.Metrics, units local.Units, log *slog.Logger) (err error) {
	h.runtimes, err = open.Runtimes(cfg, m.RuntimeCall, units, log)
	return err
}

// kept has the state that persists across restarts of the agent.
type kept struct {
	folder  *statefile.Folder
	values  *statefile.Values // of the agent, such as Events to send later
	notes   *statefile.Values // of the Node: what is recorded nowhere else, such as a cordon
	journal *journal.Journal
	reboots *reboots.Ledger
	drained *maintenance.Drained
}

// newKept opens the state directory. It fails if users other than root can write there: they could
// start containers.
func newKept(cfg config.Config, h host, log *slog.Logger) (k kept, err error) {
	_, _, err = trust.Path(cfg.State.Directory)
	if untrusted, ok := errors.AsType[*trust.Error](err); ok {
		return k, fmt.Errorf("state.directory: %w: %s", untrusted, untrusted.Hint)
	}
	if k.folder, err = statefile.Open(cfg.State.Directory, log); err != nil {
		return k, err
	}
	k.values, k.notes = k.folder.Values("agent"), k.folder.Notes("node")
	k.journal = journal.Open(open.JournalFile(cfg), h.boot, log)
	k.drained = maintenance.OpenDrained(k.folder.File("drained"))
	o := reboots.Options{
		Boot:    h.boot,
		Machine: reboots.Machine{ID: h.machine.MachineID, UUID: h.machine.SystemUUID},
		Journal: k.journal,
		Store:   k.values,
		Log:     log,
	}
	if h.reader.ClockSet() {
		o.Began = time.Now().Add(-uptime())
	}
	k.reboots = reboots.Open(o)
	return k, nil
}

// unknown says why it is not known what a person has decided about the Node; empty if it is.
func (k kept) unknown() string {
	if k.notes.Unread() {
		return "node.json in `state.directory` could not be read at the start, so that `hostler leave` and `hostler cordon` may be unknown. Once the file can be read, restart hostler. If it stays unreadable, rename the file and restart hostler: it then forgets both"
	}
	return ""
}

// flush writes the state files. The health of the state reports the same error.
func (k kept) flush() error { return k.folder.Flush() }

// uptime returns how long the kernel has run. It does not depend on the wall clock.
func uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0 // treat it as just booted: keeping objects too long does no harm
	}
	return time.Duration(now.Nano())
}
