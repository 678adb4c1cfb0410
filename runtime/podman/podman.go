// Package podman drives a Podman of the whole host over its API.
//
// It owns the translation between Podman's pods and containers and package runtime: a
// Podman pod is a pod, a Compose project is one, and so is each container that is of
// neither. Infra containers are not shown as containers: they are what makes a pod ready.
// A container that is a systemd unit's is stopped by stopping the unit. It refuses to
// create anything, and to touch volumes, networks and users' own Podmans.
//
// Podman's containers run without a daemon: who asks its API starts a service, which ends
// itself seconds later. So nothing is asked twice: while a Watch is in progress, which sees
// in Podman's folders whatever begins and ends, lists are answered from memory until
// something has happened.
package podman

import (
	"context"
	"log/slog"
	"sync"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// Type is what candidates of this adapter are marked with.
const Type = "podman"

// Options say which Podman to talk to, and how.
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
	exits    string // Exits, but in tests

	aboutMu sync.Mutex
	about   about

	facts    facts
	podUnits podUnits
	changes  changes
	answers  answers
}

// answers holds what Podman reported last, for as long as nothing changes.
type answers struct {
	pods   remembered[[]runtime.Pod]
	images remembered[[]runtime.Image]
	others remembered[[]runtime.ImageUser]
}

var _ runtime.Runtime = (*Runtime)(nil)

// New prepares a runtime without talking to it: the first call connects. It fails on an
// endpoint that cannot be a unix socket.
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

// Name is the name that every listed object carries.
func (r *Runtime) Name() string { return r.name }

// Endpoint is the socket as a URL, such as unix:///run/podman/podman.sock.
func (r *Runtime) Endpoint() string { return "unix://" + r.path }

// Close ends the connection. Later calls end with runtime.ErrUnavailable.
func (r *Runtime) Close() error { return r.conn.Close() }
