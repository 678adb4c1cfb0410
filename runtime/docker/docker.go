// Package docker drives a Docker Engine over its API.
//
// It owns the translation between Docker's containers and package runtime: a Compose
// project is a pod, and so is a container that belongs to none. It refuses to create
// anything, and to touch volumes, networks and build caches.
//
// It calls little. A list of pods is one call, plus one for each container that is new,
// has ended or was changed since the last list; a list of images is one; what cannot change while
// dockerd lives is asked once in its life. Package engine is the connection.
package docker

import (
	"log/slog"
	"sync"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// Type is what candidates of this adapter are marked with.
const Type = "docker"

// Options say which Docker to talk to, and how.
type Options = local.Options

// Runtime is one Docker Engine. It is safe for concurrent use.
type Runtime struct {
	name     string
	path     string // of the socket
	log      *slog.Logger
	timeouts local.Timeouts
	procRoot string
	conn     *engine.Conn
	units    local.Units // nil where no service manager runs

	aboutMu sync.Mutex
	about   about

	facts     facts
	sizes     sizes
	unitStops local.UnitStops
}

var (
	_ runtime.Runtime = (*Runtime)(nil)
	_ runtime.Starter = (*Runtime)(nil)
)

// New prepares a runtime without talking to it: the first call connects. It fails on an
// endpoint that cannot be a unix socket.
func New(o Options) (*Runtime, error) {
	o, path, err := o.Complete(NameOf)
	if err != nil {
		return nil, err
	}
	return &Runtime{
		name: o.Name, path: path, log: o.Logger, timeouts: o.Timeouts, procRoot: o.ProcRoot,
		conn: engine.New(path, o.Observe), units: o.Units,
		facts: facts{byID: map[string]fact{}}, sizes: sizes{turn: make(chan struct{}, 1)},
	}, nil
}

// Name is the name that every listed object carries.
func (r *Runtime) Name() string { return r.name }

// Endpoint is the socket as a URL, such as unix:///run/docker.sock.
func (r *Runtime) Endpoint() string { return "unix://" + r.path }

// Close ends the connection. Later calls end with runtime.ErrUnavailable.
func (r *Runtime) Close() error { return r.conn.Close() }
