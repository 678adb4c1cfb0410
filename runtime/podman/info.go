package podman

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// aboutAge is how long data about Podman stays valid. It is long, because each request starts a
// process.
const aboutAge = time.Hour

// about has data that changes only with Podman's version or configuration.
type about struct {
	askedAt time.Time
	socket  string // the listening socket at the request; it changes with an upgrade
	version string
	root    string // folder of images and containers
	run     string // folder of their state, which a boot removes
	driver  string // storage driver, part of the names of folders
}

// Info checks whether Podman's socket has a listener. It sends no request, which would start the
// service, unless data about Podman is missing.
func (r *Runtime) Info(ctx context.Context) (runtime.Info, error) {
	const what = "get runtime status"
	if err := r.check(ctx, what); err != nil {
		return runtime.Info{}, err
	}
	a, err := r.describe(ctx)
	if err != nil {
		return runtime.Info{}, err
	}
	return sanitize.Clean(runtime.Info{Name: "podman", Version: a.version, Endpoint: r.Endpoint(), Ready: true, NetworkReady: true}), nil
}

// check is called before a cached answer is used. It fails if ctx has ended or Podman cannot be
// queried.
func (r *Runtime) check(ctx context.Context, what string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	if r.socket.Listener() == "" {
		return fmt.Errorf("%s: %w: nothing listens at %s: run systemctl enable --now podman.socket", what, runtime.ErrUnavailable, r.path)
	}
	return nil
}

// describe requests data about Podman, unless it is known.
func (r *Runtime) describe(ctx context.Context) (about, error) {
	r.aboutMu.Lock()
	a, socket := r.about, r.socket.Listener()
	r.aboutMu.Unlock()
	if !a.askedAt.IsZero() && time.Since(a.askedAt) < aboutAge && a.socket == socket {
		return a, nil
	}
	version, err := queryVersion(ctx, r.conn, r.timeouts.Query)
	if err != nil {
		return about{}, err
	}
	const what = "get runtime status"
	var answer struct {
		Store struct {
			GraphDriverName, GraphRoot, RunRoot string
		} `json:"store"`
	}
	if err := r.get(ctx, "Info", what, "/info", nil, &answer); err != nil {
		return about{}, err
	}
	for _, folder := range []string{answer.Store.GraphRoot, answer.Store.RunRoot} {
		if !filepath.IsAbs(folder) {
			return about{}, fmt.Errorf("%s: %w: its folder %q is not an absolute path", what, runtime.ErrInvalidAnswer, folder)
		}
	}
	a = about{askedAt: time.Now(), socket: socket, version: version, root: answer.Store.GraphRoot, run: answer.Store.RunRoot, driver: answer.Store.GraphDriverName}
	r.aboutMu.Lock()
	r.about = a
	r.aboutMu.Unlock()
	return a, nil
}

// ImageFilesystems returns the filesystem of Podman's images.
func (r *Runtime) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	const what = "list image filesystems"
	if err := r.check(ctx, what); err != nil {
		return nil, err
	}
	a, err := r.describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	list, err := local.Filesystems(r.procRoot, r.name, []string{a.root})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}
