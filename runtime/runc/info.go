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
	// versionTimeout is how long a program may take to print its version.
	versionTimeout = 2 * time.Second
	// failureKept is how long one that did not is not asked again: it may have been the
	// host that was busy.
	failureKept = 10 * time.Minute
)

// version keeps what a program says of its version, as long as the program is the same.
type version struct {
	mu    sync.Mutex // guards what follows
	path  string
	stamp stamp
	text  string
	err   error // why it did not
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
			_ = root.Close() // nothing was written
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

// program is whose root this is: by its first container, and by its name as long as there
// is none.
func (r *Runtime) program() string {
	name := "runc"
	if strings.Contains(filepath.Base(r.path), "crun") {
		name = "crun"
	}
	// Nothing is known about a root that cannot be read.
	_ = r.store.each(func(c container) bool {
		if c.err != nil {
			return true
		}
		name = c.state.program
		return false
	})
	return name
}

// ask returns the version of a program. It is run only when its file has changed, or some
// time after it has failed.
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
	if ctx.Err() == nil { // else it is the caller who had no time
		v.path, v.stamp, v.text, v.err, v.at = path, now, text, err, time.Now()
	}
	return text, err
}
