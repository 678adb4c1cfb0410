// Package podman drives the host's Podman over its API.
//
// It owns the translation between Podman's pods and containers and package runtime. A Podman pod is
// a pod, and so is a Compose project, and each other container. Infra containers are not listed as
// containers: they decide whether a pod is ready. A container of a systemd unit is stopped by
// stopping the unit. The package never creates anything, and does not touch volumes, networks and
// the Podmans of users.
//
// Podman's containers run without a daemon: a request to its API starts a service, which exits
// seconds later. So no request is repeated without need. A Watch sees in Podman's folders what
// starts and ends. While it runs, lists come from a cache until something has changed.
package podman

import (
	"context"
	"log/slog"
	"sync"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// Type is the type of this adapter's candidates.
const Type = "podman"

// Options select a Podman, and set limits for its calls.
type Options = local.Options

// Runtime is one Podman. It is safe for concurrent use.
type Runtime struct {
	name     string
	path     string // of the socket
	log      *slog.Logger
	timeouts local.Timeouts
	procRoot string
	units    local.Units
	conn     *engine.Conn
	socket   *local.Activation
	exits    string // Exits, except in tests

	aboutMu sync.Mutex
	about   about

	facts    facts
	podUnits podUnits
	changes  changes
	answers  answers
}

// answers caches Podman's answers while nothing changes.
type answers struct {
	pods   cached[[]runtime.Pod]
	images cached[[]runtime.Image]
	others cached[[]runtime.ImageUser]
}

var _ runtime.Runtime = (*Runtime)(nil)

// New prepares a runtime without connecting: the first call connects. It fails if the endpoint is
// not a unix socket.
func New(o Options) (*Runtime, error) {
	o, path, err := o.Complete(NameOf)
	if err != nil {
		return nil, err
	}
	socket := &local.Activation{ProcRoot: o.ProcRoot, Path: path}
	mayWake := func(ctx context.Context) error { return local.MayWake(ctx, o.Units) }
	return &Runtime{
		name: o.Name, path: path, log: o.Logger, timeouts: o.Timeouts, procRoot: o.ProcRoot, units: o.Units,
		conn: engine.NewWaking(socket, o.Observe, mayWake), socket: socket, exits: Exits,
		changes: changes{settling: settling},
	}, nil
}

// Name returns the name that every listed object carries.
func (r *Runtime) Name() string { return r.name }

// Endpoint returns the socket as a URL, such as unix:///run/podman/podman.sock.
func (r *Runtime) Endpoint() string { return "unix://" + r.path }

// Close closes the connection. Later calls fail with runtime.ErrUnavailable.
func (r *Runtime) Close() error { return r.conn.Close() }
