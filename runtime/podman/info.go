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

// aboutAge is how long the answer of Podman about itself is used: each request starts another
// process.
const aboutAge = time.Hour

// about is what changes only with Podman's version or configuration.
type about struct {
	askedAt time.Time
	socket  string // who listened then: an upgrade has another one listen
	version string
	root    string // where images and containers are kept
	run     string // where their state is, which a boot removes
	driver  string // of its storage, by which folders are named
}

// Info reports whether Podman can be queried: whether its socket has a listener. It sends no
// request, which would start the service, except for missing facts.
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

// check is for cached answers: it fails if the caller has gone, or Podman cannot be queried.
func (r *Runtime) check(ctx context.Context, what string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	if r.socket.Listener() == "" {
		return fmt.Errorf("%s: %w: nothing listens at %s: run systemctl enable --now podman.socket", what, runtime.ErrUnavailable, r.path)
	}
	return nil
}

// describe asks Podman what it is, unless that is known.
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

// ImageFilesystems names where Podman keeps images.
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
