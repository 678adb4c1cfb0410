package local

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"hostler.io/hostler/runtime"
)

// Options say which runtime an adapter talks to, and how. Only Endpoint is required.
type Options struct {
	// Endpoint is the socket, as unix:///path or as an absolute path.
	Endpoint string
	// Name is put into every object that the adapter lists, and tells this
	// runtime from others on the host. The adapter's NameOf(Endpoint) if empty.
	Name string
	// Logger receives the few things that are nobody's error. Nothing if nil.
	Logger *slog.Logger
	// Observe is called after each call to the runtime with the method's name, such as
	// "ListContainers", how long it took, and its error; not for event streams,
	// which end when they end. It must be safe for concurrent use. May be nil.
	Observe func(method string, took time.Duration, err error)
	// Timeouts bound the calls; a zero one is the default.
	Timeouts Timeouts
	// ProcRoot is the proc filesystem whose self/mountinfo names the mounts
	// that image filesystems are resolved to. "/proc" if empty.
	ProcRoot string
	// PodLogs is the folder that pods' logs are in; /var/log/pods if empty.
	PodLogs string
	// Units are those of systemd that runs this host; nil where none does.
	Units Units
}

// Units is what an adapter asks of systemd, about containers that are its
// services' own, and before it has one started.
type Units interface {
	// StopUnit begins to stop the unit of that name that a process is of, as `systemctl
	// stop --no-block`, and reports whether there was anything to stop: false where no such
	// unit runs, or the process is none of it. Process 0 is of any. Doing so while it
	// stops changes nothing. Where there is something to stop it calls before right before it
	// asks systemd, with the names of that unit and of those that systemd stops with it.
	StopUnit(ctx context.Context, name string, pid int, before func(ctx context.Context, names []string)) (stopping bool, err error)
	// HoldStop queues the stop of a unit, and has systemd begin it after Release, or once atMost
	// has passed. Until then systemd sends it no signal, and does not start it again if it ends. It
	// returns nil if there is nothing to stop. It calls before as StopUnit does.
	HoldStop(ctx context.Context, name string, atMost time.Duration, before func(ctx context.Context, names []string)) (Hold, error)
	// MainOf names the service whose main process that is; empty if it is that of none.
	MainOf(ctx context.Context, pid int) (name string, err error)
	// UnitStops reports whether the stop of a unit has started or is over: false while it
	// waits for others, that are ordered after the unit, to stop.
	UnitStops(ctx context.Context, name string) (bool, error)
	// Units reports those units that there are, by name.
	Units(ctx context.Context, names ...string) (map[string]Unit, error)
	// Stopping reports whether the whole host is going down.
	Stopping(ctx context.Context) (bool, error)
}

// Hold is the stop of a unit that systemd has queued and has not started.
type Hold interface {
	Release(ctx context.Context) error // begins the stop
	Cancel(ctx context.Context) error  // withdraws it
}

// Unit is what an adapter knows of a unit.
type Unit struct {
	Instance bool // of a template: with that there is one of any name
	AtBoot   bool // systemd starts it at boots
	Runs     bool // there is something to stop
	Starts   bool // it is being started: what is its main process may not be known yet

	// Of a service alone:

	Oneshot     bool          // it is being started as long as its main process runs, and over then
	Main        int           // its main process, if it has one
	TimeoutStop time.Duration // after which systemd ends each step of its stop, zero for never
}

// MayWake reports why a service must not be started now that is meant to be started by
// whoever connects: as long as a shutdown can be cancelled, a unit that is started does so
// (systemd.unit(5), Conflicts=).
func MayWake(ctx context.Context, units Units) error {
	if units == nil {
		return nil
	}
	// If that is unknown, such as without systemd, nothing is lost.
	if stopping, err := units.Stopping(ctx); err == nil && stopping {
		return runtime.ErrNotRunning
	}
	return nil
}

// Complete fills in what is empty, and returns the socket's path as well. It fails on an
// endpoint that cannot be a unix socket, and on a negative timeout.
func (o Options) Complete(nameOf func(path string) string) (complete Options, path string, err error) {
	return o.CompleteAs(ParseEndpoint, nameOf)
}

// CompleteAs is Complete where endpoints are no sockets: parse returns the path that one
// names.
func (o Options) CompleteAs(parse func(endpoint string) (string, error), nameOf func(path string) string) (complete Options, path string, err error) {
	if path, err = parse(o.Endpoint); err != nil {
		return o, "", err
	}
	if o.Timeouts, err = o.Timeouts.WithDefaults(); err != nil {
		return o, "", err
	}
	if o.Name == "" {
		o.Name = nameOf(path)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("runtime", o.Name)
	if o.Observe == nil {
		o.Observe = func(string, time.Duration, error) {}
	}
	o.ProcRoot = cmp.Or(o.ProcRoot, "/proc")
	return o, path, nil
}
