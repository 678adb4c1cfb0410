// Package runc manages containers that were created directly with runc or crun. It uses the files
// that these programs keep for each container in a state root, such as /run/runc.
//
// It owns the translation between such a container and package runtime, in which it is its own pod.
// It also owns the stop of a container: there is no daemon to call, so it signals processes. It
// never creates or starts anything. It does not touch containers that a manager such as Podman or
// CRI-O keeps in the same root. There are no images.
//
// It reads the files without libcontainer, which was tried. libcontainer cannot read crun's files.
// It takes 0.4 ms and 30 kB for each read, ten times as much as this package. When it deletes a
// container, it runs the container's hooks as children of this process. It adds 0.3 MB to the
// binary. Neither works without root.
//
// Containers are deleted by the programs themselves (package program). For everything else it uses
// the kernel: a list reads files of /run and /proc, pidfds report ends, inotify reports new and
// removed containers. Nothing is polled, and an idle root costs nothing.
package runc

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc/root"
)

// Type is the type of this adapter's candidates.
const Type = "runc"

// Options select a state root: Endpoint is its path.
type Options = local.Options

// Runtime is one state root. It is safe for concurrent use.
type Runtime struct {
	name     string
	path     string // of the root
	log      *slog.Logger
	timeouts local.Timeouts
	procRoot string
	observe  func(method string, took time.Duration, err error)
	units    local.Units // nil if there is no service manager
	store    *store
	version  version
	closed   atomic.Bool

	unitStops local.UnitStops
	// signalOf returns the stop signal of a container without an annotation for it, as the
	// containers of a manager are; nil if there is no manager.
	signalOf func(id string) string
}

var _ runtime.Runtime = (*Runtime)(nil)

// New prepares a runtime without reading its root. It fails if the endpoint is not a valid root, or
// belongs to another program.
func New(o Options) (*Runtime, error) { return newRuntime(o, root.Parse) }

func newRuntime(o Options, parse func(endpoint string) (string, error)) (*Runtime, error) {
	o, path, err := o.CompleteAs(parse, NameOf)
	if err != nil {
		return nil, err
	}
	return &Runtime{
		name: o.Name, path: path, log: o.Logger, timeouts: o.Timeouts, procRoot: o.ProcRoot, observe: o.Observe, units: o.Units,
		store: newStore(path, o.Logger),
	}, nil
}

// NewFor returns a runtime for the containers in the root of a manager, such as Containerd, after
// the manager has stopped and while they still run. signalOf returns the stop signal of a container
// by its ID, or "" for SIGTERM.
func NewFor(manager string, signalOf func(id string) string, o Options) (*Runtime, error) {
	absolute := func(endpoint string) (string, error) {
		if !filepath.IsAbs(endpoint) {
			return "", fmt.Errorf("%q is not an absolute path", endpoint)
		}
		return filepath.Clean(endpoint), nil
	}
	r, err := newRuntime(o, absolute)
	if err != nil {
		return nil, err
	}
	r.store.manager, r.signalOf = manager, signalOf
	return r, nil
}

// Name returns the name that every listed object carries.
func (r *Runtime) Name() string { return r.name }

// Endpoint returns the path of the state root.
func (r *Runtime) Endpoint() string { return r.path }

// Bundle returns the folder from which a container was created, or "" if it is unknown.
func (r *Runtime) Bundle(id string) (path string) {
	_ = r.store.one(id, func(c container) error {
		path = c.state.bundle
		return nil
	})
	return path
}

// Close ends the use of the root. Later calls fail with runtime.ErrUnavailable.
func (r *Runtime) Close() error {
	r.closed.Store(true)
	return nil
}

// call makes and observes a call, unless ctx has ended or the runtime is closed.
func (r *Runtime) call(ctx context.Context, method, what string, do func() error) error {
	switch {
	case r.closed.Load():
		return fmt.Errorf("%s: %w: closed", what, runtime.ErrUnavailable)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	began := time.Now()
	err := do()
	r.observe(method, time.Since(began), err)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Images returns none: runc has no images.
func (r *Runtime) Images(ctx context.Context) ([]runtime.Image, error) {
	return nil, r.call(ctx, "Images", "list images", func() error { return nil })
}

// ImageFilesystems returns none.
func (r *Runtime) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	return nil, r.call(ctx, "Images", "list image filesystems", func() error { return nil })
}

// RemoveImage returns runtime.ErrUnsupported.
func (r *Runtime) RemoveImage(_ context.Context, img runtime.Image) error {
	return fmt.Errorf("%s: %w: it has no images", local.Named("remove image", img.Names()[0], ""), runtime.ErrUnsupported)
}
