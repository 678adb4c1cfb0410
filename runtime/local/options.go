package local

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"hostler.io/hostler/runtime"
)

// Options select a runtime for an adapter, and set limits for its calls. Only Endpoint is required.
type Options struct {
	// Endpoint is the socket, as unix:///path or an absolute path.
	Endpoint string
	// Name is in every object that the adapter lists, and distinguishes this runtime from others on
	// the host. The default is the adapter's NameOf(Endpoint).
	Name string
	// Logger receives problems that no call returns. The default is no logging.
	Logger *slog.Logger
	// Observe is called after each call to the runtime with the method's name, such as
	// "ListContainers", its duration, and its error. It is not called for event streams, whose
	// duration has no meaning. It must be safe for concurrent use. It may be nil.
	Observe func(method string, took time.Duration, err error)
	// Timeouts bound the calls. Zero means the default.
	Timeouts Timeouts
	// ProcRoot is the proc filesystem with the mounts to which image folders are resolved. The
	// default is "/proc".
	ProcRoot string
	// PodLogs is the folder of pod logs. The default is /var/log/pods.
	PodLogs string
	// Units are the units of the host's systemd; nil if there is no systemd.
	Units Units
}

// Units is what adapters need from systemd, for containers that belong to services, and before they
// start a service.
type Units interface {
	// StopUnit begins to stop a unit, like `systemctl stop --no-block`. It does so only if the
	// process pid belongs to the unit; pid 0 skips this check. stopping is false if the unit does
	// not run or the check fails. If the unit is stopping already, another call has no effect. Just
	// before the request to systemd, it calls before with the names of that unit and of those that
	// systemd stops with it. After an error of before, it stops nothing.
	StopUnit(ctx context.Context, name string, pid int, before func(ctx context.Context, names []string) error) (stopping bool, err error)
	// HoldStop queues the stop of a unit, which systemd begins after Release, or once atMost has
	// passed. Until then systemd sends the unit no signal, and does not restart it if it ends.
	// HoldStop returns nil if there is nothing to stop. It calls before as StopUnit does.
	HoldStop(ctx context.Context, name string, atMost time.Duration, before func(ctx context.Context, names []string) error) (Hold, error)
	// MainOf returns the service whose main process is pid, or "".
	MainOf(ctx context.Context, pid int) (name string, err error)
	// UnitStops reports whether the stop of a unit has begun or is over. It is false while units
	// that are ordered after the unit are still stopping.
	UnitStops(ctx context.Context, name string) (bool, error)
	// Units returns the units that exist, by name.
	Units(ctx context.Context, names ...string) (map[string]Unit, error)
	// Stopping reports whether the whole host is shutting down.
	Stopping(ctx context.Context) (bool, error)
}

// Hold is a queued stop of a unit that has not begun.
type Hold interface {
	Release(ctx context.Context) error // begins the stop
	Cancel(ctx context.Context) error  // cancels the stop
}

// Unit is what an adapter needs to know about a unit.
type Unit struct {
	Instance bool // of a template, so that a unit of any instance name exists
	AtBoot   bool // systemd starts it at boot
	Runs     bool // there is something to stop
	Starts   bool // it is starting: its main process may not be known yet

	// Only for services:

	Oneshot     bool          // it is starting while its main process runs, and ends with it
	Main        int           // its main process, or 0
	TimeoutStop time.Duration // after which systemd ends each step of its stop; 0 for never
}

// MayWake returns an error if a service that is started by a connection must not be started now.
// While a shutdown can be cancelled, starting a unit cancels it (systemd.unit(5), Conflicts=).
func MayWake(ctx context.Context, units Units) error {
	if units == nil {
		return nil
	}
	// If this is unknown, for example without systemd, a start does no harm.
	if stopping, err := units.Stopping(ctx); err == nil && stopping {
		return runtime.ErrNotRunning
	}
	return nil
}

// Complete sets defaults, and also returns the socket's path. It fails if the endpoint is not a
// unix socket, or if a timeout is negative.
func (o Options) Complete(nameOf func(path string) string) (complete Options, path string, err error) {
	return o.CompleteAs(ParseEndpoint, nameOf)
}

// CompleteAs is Complete for endpoints that are not sockets: parse returns the path of an endpoint.
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
