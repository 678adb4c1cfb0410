package podman

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"hostler.io/hostler/runtime"
)

// Exits is the folder where conmon writes a file for each container that ends: below the engine's
// tmp_dir, see containers.conf(5).
const Exits = "/run/libpod/exits"

// userdata is a container's folder in which conmon writes pidFile and conmonPidFile when it starts.
// Only Podman uses the name conmonPidFile; CRI-O may share the folders. Options can place both
// files elsewhere (--pidfile, --conmon-pidfile).
const (
	userdata      = "userdata"
	pidFile       = "pidfile"
	conmonPidFile = "conmon.pid"
)

// Watch delivers changes in Podman until ctx ends. It watches Podman's folders, because an event
// stream would keep a service running. The first changes may be missed, so callers list after they
// begin to watch, and regularly.
func (r *Runtime) Watch(ctx context.Context, out chan<- runtime.Event) error {
	const what = "watch events of the runtime"
	a, err := r.describe(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	w, err := watchFolders(a, r.exits)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer w.Close()
	r.changes.watch(1)
	defer r.changes.watch(-1)
	for {
		var events []runtime.Event
		select {
		case e := <-w.Events:
			if events, err = w.translate(e); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("%s: %w", what, err)
			}
			events = []runtime.Event{{Type: runtime.Changed}} // some events are lost
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		for _, event := range events {
			r.changes.note()
			event.Runtime, event.Time = r.name, time.Now()
			select {
			case out <- event:
			case <-ctx.Done():
				return fmt.Errorf("%s: %w", what, context.Cause(ctx))
			}
		}
	}
}

// folders watches the folders that change when containers and images are created, started, ended
// and removed.
type folders struct {
	*fsnotify.Watcher
	exits      string
	running    string // of each container, until it is removed or the host shuts down
	containers string // data of containers, including those of other tools
	images     string
}

func watchFolders(a about, exits string) (*folders, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("%w; see fs.inotify.max_user_instances", err)
	}
	w := &folders{
		Watcher: watcher, exits: exits, running: filepath.Join(a.run, a.driver+"-containers"),
		containers: filepath.Join(a.root, a.driver+"-containers"), images: filepath.Join(a.root, a.driver+"-images"),
	}
	for _, folder := range w.all() {
		if err := w.Add(folder); err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", folder, err), w.Close())
		}
	}
	if _, err := w.addContainers(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *folders) all() []string { return []string{w.exits, w.running, w.containers, w.images} }

// addContainers watches the existing folders of each container.
func (w *folders) addContainers() (added bool, err error) {
	entries, err := os.ReadDir(w.running)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if !isID(e.Name()) {
			continue
		}
		for _, folder := range []string{filepath.Join(w.running, e.Name()), filepath.Join(w.running, e.Name(), userdata)} {
			if slices.Contains(w.WatchList(), folder) {
				continue
			}
			if err := w.Add(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return added, fmt.Errorf("watch %s: %w; see fs.inotify.max_user_watches", folder, err)
			}
			added = true
		}
	}
	return added, nil
}

// isID reports whether a name is the ID of a container or an image.
func isID(name string) bool {
	return len(name) == 64 && strings.Trim(name, "0123456789abcdef") == ""
}

// translate returns the events for a written file.
func (w *folders) translate(e fsnotify.Event) ([]runtime.Event, error) {
	if slices.Contains(w.all(), e.Name) {
		if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
			return nil, fmt.Errorf("%w: folder %s was removed", runtime.ErrUnavailable, e.Name)
		}
		return nil, nil
	}
	folder, name := filepath.Split(e.Name)
	folder = filepath.Clean(folder)
	created, removed := e.Has(fsnotify.Create), e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
	switch folder {
	case w.exits:
		switch {
		case created && isID(name):
			return []runtime.Event{{Type: runtime.ContainerExited, ContainerID: name}}, nil
		case removed && isID(name): // the container starts again, or is removed
			return []runtime.Event{{Type: runtime.Changed}}, nil
		}
	case w.images:
		switch {
		case created && isID(name):
			return []runtime.Event{{Type: runtime.ImageAdded, Image: name}}, nil
		case removed && isID(name):
			return []runtime.Event{{Type: runtime.ImageRemoved, Image: name}}, nil
		}
	case w.running:
		switch {
		case removed && isID(name):
			return []runtime.Event{{Type: runtime.ContainerRemoved, ContainerID: name}}, nil
		case created && isID(name):
			return w.watchNew()
		}
	case w.containers:
	default:
		return w.ofContainer(folder, name, e)
	}
	// A list is replaced by renaming a temporary file.
	if created && strings.HasSuffix(name, ".json") && !strings.HasPrefix(name, ".") {
		return []runtime.Event{{Type: runtime.Changed}}, nil
	}
	return nil, nil
}

// ofContainer returns the events for a file in the folders of a container.
func (w *folders) ofContainer(folder, name string, e fsnotify.Event) ([]runtime.Event, error) {
	written := e.Has(fsnotify.Create) || e.Has(fsnotify.Write)
	switch {
	case filepath.Base(folder) == userdata && name == pidFile && written:
		return []runtime.Event{{Type: runtime.ContainerStarted, ContainerID: filepath.Base(filepath.Dir(folder))}}, nil
	case filepath.Base(folder) == userdata && name == conmonPidFile && written:
		return []runtime.Event{{Type: runtime.Changed}}, nil
	case name == userdata && e.Has(fsnotify.Create):
		return w.watchNew()
	}
	return nil, nil
}

// watchNew watches new containers. They may have started already.
func (w *folders) watchNew() ([]runtime.Event, error) {
	added, err := w.addContainers()
	if err != nil || !added {
		return nil, err
	}
	return []runtime.Event{{Type: runtime.Changed}}, nil
}
