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

// ErrNoBus means that the system bus cannot be reached, or was lost under a
// call. The caller may try again: every call connects again.
var ErrNoBus = bus.ErrUnreachable

// ErrNoLogind means that the bus works but nobody on it is the login manager.
var ErrNoLogind = errors.New("systemd-logind is not on the system bus")

// Absent reports whether err means that nothing on this host can delay a shutdown: there is
// no bus, or no logind on it.
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

// LogindOptions says where logind is and under which name hostler locks. The
// zero value is right for a service of the host.
type LogindOptions struct {
	// Address is the D-Bus address of the system bus. Default: bus.DefaultAddress.
	Address string
	// Root is the folder under which logind's configuration lies. Default: "/".
	Root string
	// Who is the name of the holder in the list of inhibitors. Default: "hostler".
	Who string
	// Timeout bounds calls whose context has no deadline. Default: 5 s.
	Timeout time.Duration
	// Notifier reaches systemd, which keeps the lock across a
	// restart of this service. Nil: nobody keeps it.
	Notifier *notify.Notifier
	// Kept are the descriptors that systemd passed at start (see
	// notify.PassedFiles). Those named StoredLock are taken over by NewLogind, and
	// closed where they are invalid.
	Kept []*os.File
	// Log receives what is returned to no caller. Default: none.
	Log *slog.Logger
}

// Logind is shutdown.Inhibitor over systemd-logind. Its methods are safe for
// concurrent use. It connects at the first call and again after the bus came
// back; between calls it costs nothing.
type Logind struct {
	options LogindOptions
	bus     *bus.Connection
	log     *slog.Logger

	locking sync.Mutex // one Inhibit at a time

	*lockKeeper
	*longestDelay
}

// NewLogind returns a Logind that has not connected yet. Close it.
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

// Close ends the connection and closes this process's descriptors of the lock.
// What systemd keeps stays effective, for the next process of this
// service; ReleaseAll gives that up too.
func (l *Logind) Close() error {
	l.bus.Close()
	return l.closeHere()
}

// Preparing is logind's PreparingForShutdown. A logind that was restarted in
// the middle of a shutdown has forgotten it, and says false.
func (l *Logind) Preparing(ctx context.Context) (bool, error) {
	ctx, cancel := l.bus.Bounded(ctx)
	defer cancel()
	var preparing bool
	err := get(ctx, l.bus, "PreparingForShutdown", &preparing)
	return preparing, err
}

// PreparingKind is what logind's PreparingForShutdownWithMetadata says of the kind of the
// shutdown, such as "reboot". On systemd before 257, which does not have it, ScheduledShutdown does.
func (l *Logind) PreparingKind(ctx context.Context) (string, error) {
	ctx, cancel := l.bus.Bounded(ctx)
	defer cancel()
	var metadata map[string]dbus.Variant
	if err := get(ctx, l.bus, "PreparingForShutdownWithMetadata", &metadata); err != nil {
		next, err := l.scheduled(ctx)
		return next.begun(), err
	}
	kind, _ := metadata["type"].Value().(string)
	return kind, nil
}

// schedule is logind's ScheduledShutdown.
type schedule struct {
	Kind         string
	Microseconds uint64
}

// scheduled reads it.
func (l *Logind) scheduled(ctx context.Context) (s schedule, err error) {
	return s, get(ctx, l.bus, "ScheduledShutdown", &s)
}

// at is when it begins. A shutdown that was requested for now has the time 0.
func (s schedule) at() time.Time { return time.UnixMicro(int64(s.Microseconds)) }

// begun is the kind of a shutdown that is not to begin later; empty if there is none. Before systemd
// 255, the announcement of a shutdown does not have its kind.
func (s schedule) begun() string {
	kinds := []string{"reboot", "poweroff", "halt", "kexec", "soft-reboot"} // and no kind of sleep
	if s.at().After(time.Now()) || !slices.Contains(kinds, s.Kind) {
		return ""
	}
	return s.Kind
}

// Scheduled is logind's ScheduledShutdown, as `shutdown +30` sets it: the kind, such as "reboot", and
// when it is to begin; empty if none is scheduled.
func (l *Logind) Scheduled(ctx context.Context) (kind string, at time.Time, err error) {
	ctx, cancel := l.bus.Bounded(ctx)
	defer cancel()
	next, err := l.scheduled(ctx)
	// A shutdown that is not to come later is in there, too.
	if err != nil || next.Kind == "" || !next.at().After(time.Now()) {
		return "", time.Time{}, err
	}
	return next.Kind, next.at(), nil
}

// InhibitorLock is one lock as logind lists it.
type InhibitorLock struct {
	What string // what it inhibits, colon-separated: "shutdown:sleep"
	Who  string // its holder's name: "kubelet"
	Why  string // its holder's reason
	Mode string // "block", "block-weak" or "delay"
	UID  uint32 // the user who took it
	PID  uint32 // the process that took it, which may have ended since
}

// Inhibits reports whether the lock is on what: "shutdown", "sleep", ...
func (k InhibitorLock) Inhibits(what string) bool {
	return strings.Contains(":"+k.What+":", ":"+what+":")
}

// ListInhibitors returns all locks that logind knows of, hostler's included.
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

// Own returns those of locks that delay a shutdown in this service's name and
// were taken by this user. The process that took one may be an earlier one.
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

// fault names the operation and puts err into the class that callers know.
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
