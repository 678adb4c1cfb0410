// Package docker drives a Docker Engine over its API.
//
// It owns the translation between Docker's containers and package runtime: a Compose project is a
// pod, and so is a container without a project. It never creates anything, and does not touch
// volumes, networks and build caches.
//
// It makes few calls. A list of pods takes one call, and one for each container that is new, has
// ended or has changed since the last list. A list of images takes one. Data that cannot change
// while dockerd runs is requested once for each start of dockerd. Package engine is the connection.
package docker

import (
	"log/slog"
	"sync"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/unitclient"
)

// Type is the type of this adapter's candidates.
const Type = "docker"

// Options select a Docker, and set limits for its calls.
type Options = local.Options

// Runtime is one Docker Engine. It is safe for concurrent use.
type Runtime struct {
	name     string
	path     string // of the socket
	log      *slog.Logger
	timeouts local.Timeouts
	procRoot string
	conn     *engine.Conn
	units    local.Units // nil if there is no service manager
	files    *unitclient.Files

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

// New prepares a runtime without connecting: the first call connects. It fails if the endpoint is
// not a unix socket.
func New(o Options) (*Runtime, error) {
	o, path, err := o.Complete(NameOf)
	if err != nil {
		return nil, err
	}
	return &Runtime{
		name: o.Name, path: path, log: o.Logger, timeouts: o.Timeouts, procRoot: o.ProcRoot,
		conn: engine.New(path, o.Observe), units: o.Units, files: unitclient.NewFiles(),
		facts: facts{byID: map[string]fact{}}, sizes: sizes{turn: make(chan struct{}, 1)},
	}, nil
}

// Name returns the name that every listed object carries.
func (r *Runtime) Name() string { return r.name }

// Endpoint returns the socket as a URL, such as unix:///run/docker.sock.
func (r *Runtime) Endpoint() string { return "unix://" + r.path }

// Close closes the connection. Later calls fail with runtime.ErrUnavailable.
func (r *Runtime) Close() error { return r.conn.Close() }
