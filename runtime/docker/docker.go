// Package docker drives a Docker Engine over its API.
//
// It owns the translation between Docker's containers and package runtime: a Compose
// project is a pod, and so is a container that belongs to none. It refuses to create
// anything, and to touch volumes, networks and build caches.
//
// It calls little. A list of pods is one call, plus one for each container that is new
// or has ended since the last list; a list of images is one; what cannot change while
// dockerd lives is asked once in its life. Package engine is the connection.
package docker

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// Type is what candidates of this adapter are marked with.
const Type = "docker"

// Options say which Docker to talk to, and how. Only Endpoint is required.
type Options struct {
	// Endpoint is the socket, as unix:///path or as an absolute path.
	Endpoint string
	// Name is put into every object that the adapter lists, and tells this
	// runtime from others on the host. NameOf(Endpoint) if empty.
	Name string
	// Logger receives the few things that are nobody's error. Nothing if nil.
	Logger *slog.Logger
	// Observe is called after each API call with the method's name, such as
	// "ContainerList", how long it took, and its error; not for event streams,
	// which end when they end. It must be safe for concurrent use. May be nil.
	Observe func(method string, took time.Duration, err error)
	// Timeouts bound the calls; a zero one is the default.
	Timeouts local.Timeouts
	// ProcRoot is the proc filesystem whose self/mountinfo names the mounts
	// that image filesystems are resolved to. "/proc" if empty.
	ProcRoot string
}

// Runtime is one Docker Engine. It is safe for concurrent use.
type Runtime struct {
	name     string
	path     string // of the socket
	log      *slog.Logger
	timeouts local.Timeouts
	procRoot string
	conn     *engine.Conn

	aboutMu sync.Mutex
	about   about

	facts facts
	sizes sizes
}

var _ runtime.Runtime = (*Runtime)(nil)

// New prepares a runtime without talking to it: the first call connects. It fails on an
// endpoint that cannot be a unix socket.
func New(o Options) (*Runtime, error) {
	path, err := local.ParseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	timeouts, err := o.Timeouts.WithDefaults()
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		name: o.Name, path: path, log: o.Logger, timeouts: timeouts, procRoot: o.ProcRoot,
		facts: facts{byID: map[string]fact{}}, sizes: sizes{turn: make(chan struct{}, 1)},
	}
	if r.name == "" {
		r.name = NameOf(path)
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.log = r.log.With("runtime", r.name)
	if r.procRoot == "" {
		r.procRoot = "/proc"
	}
	observe := o.Observe
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	r.conn = engine.New(path, observe)
	return r, nil
}

// Name is the name that every listed object carries.
func (r *Runtime) Name() string { return r.name }

// Endpoint is the socket as a URL, such as unix:///run/docker.sock.
func (r *Runtime) Endpoint() string { return "unix://" + r.path }

// Close ends the connection. Later calls end with runtime.ErrUnavailable.
func (r *Runtime) Close() error { return r.conn.Close() }

// named is how errors call an object: its name, or its ID where it has none.
func named(kind, name, id string) string {
	if name == "" {
		name = id
	}
	return fmt.Sprintf("%s %q", kind, name)
}
