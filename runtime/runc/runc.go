// Package runc looks after containers that people run with runc or crun alone, by the
// files that these keep of each in a state root, such as /run/runc.
//
// It owns the translation between such a container and package runtime, in which it is a
// pod of its own, and how one is ended: its processes are the kernel's, and nobody else is
// there to be asked. It refuses to create or start anything, and to touch containers that
// a manager such as Podman or CRI-O keeps in the same root. There are no images.
//
// The files are read here, and not by libcontainer, which was tried: it reads runc's alone
// and not crun's, takes 0.4 ms and 30 kB each time for what takes a tenth of both here,
// starts the hooks of a container as children of this process when it deletes one, and
// adds 0.3 MB to the binary. Neither needs less than root. Deleting is left to the programs
// themselves (package program), everything else is asked of the kernel: a list reads files
// of /run and /proc, ends are waited for by pidfds, inotify reports new and removed containers.
// Nothing is polled, and an idle root costs nothing.
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

// Type is what candidates of this adapter are marked with.
const Type = "runc"

// Options are the state root: Endpoint is its path.
type Options = local.Options

// Runtime is one state root. It is safe for concurrent use.
type Runtime struct {
	name     string
	path     string // of the root
	log      *slog.Logger
	timeouts local.Timeouts
	procRoot string
	observe  func(method string, took time.Duration, err error)
	units    local.Units // nil where no service manager runs
	store    *store
	version  version
	closed   atomic.Bool

	unitStops local.UnitStops
	// signalOf is the stop signal of a container where its annotations do not tell, as its
	// manager's do not; nil where there is none.
	signalOf func(id string) string
}

var _ runtime.Runtime = (*Runtime)(nil)

// New prepares a runtime without reading its root. It fails on an endpoint that cannot
// be one, or that is another client's.
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

// NewFor returns a runtime for the containers that a manager, such as Containerd, has in its own
// root, for when that manager has stopped and they run on. signalOf returns the stop signal of a
// container by its ID, empty for SIGTERM.
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

// Name is the name that every listed object carries.
func (r *Runtime) Name() string { return r.name }

// Endpoint is the path of the state root.
func (r *Runtime) Endpoint() string { return r.path }

// Bundle is the folder that a container was made from; empty where that is not known.
func (r *Runtime) Bundle(id string) (path string) {
	_ = r.store.one(id, func(c container) error {
		path = c.state.bundle
		return nil
	})
	return path
}

// Close ends the use of the root. Later calls end with runtime.ErrUnavailable.
func (r *Runtime) Close() error {
	r.closed.Store(true)
	return nil
}

// call makes a call to the runtime, unless it is too late for it, and logs it.
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

// Images lists none: runc has none.
func (r *Runtime) Images(ctx context.Context) ([]runtime.Image, error) {
	return nil, r.call(ctx, "Images", "list images", func() error { return nil })
}

// ImageFilesystems names none.
func (r *Runtime) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	return nil, r.call(ctx, "Images", "list image filesystems", func() error { return nil })
}

// RemoveImage is runtime.ErrUnsupported.
func (r *Runtime) RemoveImage(_ context.Context, img runtime.Image) error {
	return fmt.Errorf("%s: %w: it has no images", local.Named("remove image", img.Names()[0], ""), runtime.ErrUnsupported)
}
