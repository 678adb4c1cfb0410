package systemd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd/bus"
	"hostler.io/hostler/systemd/notify"
)

// ErrNoBus means that the system bus cannot be reached, or that the connection broke during a call.
// The caller may try again: every call connects if necessary.
var ErrNoBus = bus.ErrUnreachable

// ErrNoLogind means that the bus works but there is no login manager on it.
var ErrNoLogind = errors.New("systemd-logind is not on the system bus")

// Absent reports whether err means that this host cannot delay a shutdown: there is no bus, or no
// logind on it.
func Absent(err error) bool { return errors.Is(err, ErrNoBus) || errors.Is(err, ErrNoLogind) }

var (
	_ shutdown.Inhibitor    = (*Logind)(nil)
	_ shutdown.DelaySourcer = (*Logind)(nil)
	_ shutdown.DelayYielder = (*Logind)(nil)
	_ shutdown.KindSource   = (*Logind)(nil)
)

const (
	loginName    = "org.freedesktop.login1"
	loginPath    = dbus.ObjectPath("/org/freedesktop/login1")
	loginManager = "org.freedesktop.login1.Manager"
)

// LogindOptions say where logind is, and under which name hostler takes locks. The zero value is
// for a service on the host.
type LogindOptions struct {
	// Address is the D-Bus address of the system bus. Default: bus.DefaultAddress.
	Address string
	// Root is the folder in which logind's configuration is. Default: "/".
	Root string
	// Who is the holder's name in the list of inhibitors. Default: "hostler".
	Who string
	// Timeout bounds calls whose context has no deadline. Default: 5 s.
	Timeout time.Duration
	// Notifier is the connection to systemd, which stores the lock across a restart of this
	// service. Default: the lock is not stored.
	Notifier *notify.Notifier
	// Kept are the descriptors that systemd passed at the start (see notify.PassedFiles). NewLogind
	// takes over those named StoredLock; invalid ones are closed.
	Kept []*os.File
	// Log receives problems that no call returns. Default: no logging.
	Log *slog.Logger
}

// Logind implements shutdown.Inhibitor with systemd-logind. Its methods are safe for concurrent
// use. It connects at the first call, and again after the bus was lost; between calls it costs
// nothing.
type Logind struct {
	options LogindOptions
	bus     *bus.Connection
	log     *slog.Logger

	locking sync.Mutex // allows one Inhibit at a time

	*lockKeeper
	*longestDelay
}

// NewLogind returns a Logind that has not connected yet. The caller closes it.
func NewLogind(options LogindOptions) *Logind {
	options.Address = cmp.Or(options.Address, bus.DefaultAddress)
	options.Root = cmp.Or(options.Root, "/")
	options.Who = cmp.Or(options.Who, "hostler")
	options.Timeout = cmp.Or(options.Timeout, bus.DefaultTimeout)
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Notifier == nil {
		options.Notifier = &notify.Notifier{}
	}
	conn, log := bus.New(options.Address, options.Timeout), options.Log.With("component", "logind")
	return &Logind{
		options: options, bus: conn, log: log,
		lockKeeper:   newLockKeeper(options.Notifier, options.Kept, log),
		longestDelay: &longestDelay{bus: conn, root: options.Root},
	}
}

// Close closes the connection and this process's descriptors of the lock. The lock in systemd's
// store stays effective for the next process of this service; ReleaseAll releases that, too.
func (l *Logind) Close() error {
	l.bus.Close()
	return l.closeHere()
}

// Preparing returns logind's PreparingForShutdown. A logind that was restarted during a shutdown
// has lost it, and returns false.
func (l *Logind) Preparing(ctx context.Context) (bool, error) {
	ctx, cancel := l.bus.Bounded(ctx)
	defer cancel()
	var preparing bool
	err := get(ctx, l.bus, "PreparingForShutdown", &preparing)
	return preparing, err
}

// PreparingKind returns the kind of the shutdown, such as "reboot", from logind's
// PreparingForShutdownWithMetadata. Before systemd 257, it uses ScheduledShutdown.
func (l *Logind) PreparingKind(ctx context.Context) (string, error) {
	ctx, cancel := l.bus.Bounded(ctx)
	defer cancel()
	var metadata map[string]dbus.Variant
	if err := get(ctx, l.bus, "PreparingForShutdownWithMetadata", &metadata); err != nil {
		next, err := l.scheduled(ctx)
		return next.currentKind(), err
	}
	kind, _ := metadata["type"].Value().(string)
	return kind, nil
}

// schedule is logind's ScheduledShutdown.
type schedule struct {
	Kind         string
	Microseconds uint64
}

// scheduled reads ScheduledShutdown.
func (l *Logind) scheduled(ctx context.Context) (s schedule, err error) {
	return s, get(ctx, l.bus, "ScheduledShutdown", &s)
}

// at returns when the shutdown begins. A shutdown that was requested without a delay has the time
// 0.
func (s schedule) at() time.Time { return time.UnixMicro(int64(s.Microseconds)) }

// currentKind returns the kind of a shutdown that is not in the future, or "". It is needed
// because, before systemd 255, the announcement of a shutdown does not contain its kind.
func (s schedule) currentKind() string {
	kinds := []string{"reboot", "poweroff", "halt", "kexec", "soft-reboot"} // no kind of sleep
	if s.at().After(time.Now()) || !slices.Contains(kinds, s.Kind) {
		return ""
	}
	return s.Kind
}

// Scheduled returns logind's ScheduledShutdown, set by commands such as `shutdown +30`: the kind,
// such as "reboot", and the time. kind is "" if none is scheduled.
func (l *Logind) Scheduled(ctx context.Context) (kind string, at time.Time, err error) {
	ctx, cancel := l.bus.Bounded(ctx)
	defer cancel()
	next, err := l.scheduled(ctx)
	// ScheduledShutdown also contains a shutdown that has already begun.
	if err != nil || next.Kind == "" || !next.at().After(time.Now()) {
		return "", time.Time{}, err
	}
	return next.Kind, next.at(), nil
}

// InhibitorLock is a lock in logind's list.
type InhibitorLock struct {
	What string // what it inhibits, colon-separated: "shutdown:sleep"
	Who  string // name of its holder: "kubelet"
	Why  string // reason of its holder
	Mode string // "block", "block-weak" or "delay"
	UID  uint32 // user who took it
	PID  uint32 // process that took it, which may have ended
}

// Inhibits reports whether the lock inhibits what: "shutdown", "sleep", ...
func (k InhibitorLock) Inhibits(what string) bool { return inhibits(k.What, what) }

// inhibits reports whether a colon-separated list has what.
func inhibits(list, what string) bool { return strings.Contains(":"+list+":", ":"+what+":") }

// ListInhibitors returns all locks of logind, including hostler's.
func (l *Logind) ListInhibitors(ctx context.Context) ([]InhibitorLock, error) {
	ctx, cancel := l.bus.Bounded(ctx)
	defer cancel()
	conn, err := l.bus.Get(ctx)
	if err != nil {
		return nil, err
	}
	var locks []InhibitorLock
	err = bus.Call(ctx, conn, loginName, loginPath, loginManager+".ListInhibitors", &locks)
	l.bus.NoteResult(conn, err)
	if err != nil {
		return nil, fault("list inhibitors of logind", err)
	}
	return locks, nil
}

// Own returns the locks that delay a shutdown under this service's name and were taken by this
// user, possibly by an earlier process.
func (l *Logind) Own(locks []InhibitorLock) []InhibitorLock {
	return slices.DeleteFunc(slices.Clone(locks), func(k InhibitorLock) bool {
		return k.Who != l.options.Who || k.Mode != "delay" || !k.Inhibits("shutdown") || k.UID != uint32(os.Geteuid())
	})
}

// get reads one property of logind's manager object.
func get(ctx context.Context, b *bus.Connection, name string, answer any) error {
	conn, err := b.Get(ctx)
	if err != nil {
		return err
	}
	err = bus.Property(ctx, conn, loginName, loginPath, loginManager, name, answer)
	b.NoteResult(conn, err)
	if err != nil {
		return fault("read logind property "+name, err)
	}
	return nil
}

// fault adds the operation and the error class to err.
func fault(operation string, err error) error {
	switch {
	case bus.Absent(err):
		return fmt.Errorf("%s: %w: %w; is systemd-logind.service running?", operation, ErrNoLogind, err)
	case bus.Severed(err):
		return fmt.Errorf("%s: %w: %w; did the dbus service stop?", operation, ErrNoBus, err)
	case bus.ErrorName(err) == "org.freedesktop.DBus.Error.AccessDenied":
		return fmt.Errorf("%s: %w; the agent has to run as root", operation, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}
