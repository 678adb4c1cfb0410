package runc

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runc/program"
)

const (
	// versionTimeout bounds a program that prints its version.
	versionTimeout = 2 * time.Second
	// failureKept is how long a program that failed is not run again: the host may have been busy.
	failureKept = 10 * time.Minute
)

// version caches the version of a program while its file does not change.
type version struct {
	mu    sync.Mutex // guards the fields below
	path  string
	stamp stamp
	text  string
	err   error // why the version is unknown
	at    time.Time
}

// Info reports whether the root can be read, and the version of the program that created its
// containers. A missing or empty root is ready: it has no containers, and needs no daemon.
func (r *Runtime) Info(ctx context.Context) (runtime.Info, error) {
	info := runtime.Info{Name: r.program(), Endpoint: r.path, Ready: true, NetworkReady: true, Imageless: true}
	err := r.call(ctx, "Info", "get runtime status", func() error {
		root, err := r.store.open()
		switch {
		case err == nil:
			_ = root.Close() // opened only to read
		case !errors.Is(err, fs.ErrNotExist):
			info.Ready, info.Message = false, err.Error()
			return nil
		}
		if info.Version, err = r.ask(ctx, info.Name); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			info.Message = err.Error() + "; its dead containers cannot be removed"
		}
		return nil
	})
	if err != nil {
		return runtime.Info{}, err
	}
	return sanitize.Clean(info), nil
}

// program returns which program uses this root: the creator of its first container or, if there is
// none, a guess from the root's name.
func (r *Runtime) program() string {
	name := "runc"
	if strings.Contains(filepath.Base(r.path), "crun") {
		name = "crun"
	}
	// A root that cannot be read counts as empty.
	_ = r.store.each(func(c container) bool {
		if c.err != nil {
			return true
		}
		name = c.state.program
		return false
	})
	return name
}

// ask returns the version of a program. It runs the program only if its file has changed, or some
// time after a failure.
func (r *Runtime) ask(ctx context.Context, name string) (string, error) {
	path, err := program.Find(name)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	now := stampOf(info)
	v := &r.version
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.path == path && v.stamp == now && (v.err == nil || time.Since(v.at) < failureKept) {
		return v.text, v.err
	}
	asking, cancel := context.WithTimeout(ctx, min(r.timeouts.Query, versionTimeout))
	defer cancel()
	text, err := program.Version(asking, path)
	if ctx.Err() == nil { // else the caller's ctx ended, not the program's time
		v.path, v.stamp, v.text, v.err, v.at = path, now, text, err, time.Now()
	}
	return text, err
}
