package runc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// Watch reports containers that are created, started, ended and removed, until ctx ends. inotify
// reports changes in the root and in each container's folder, and pidfds report ends. It waits for
// a missing root. Earlier changes are not reported.
func (r *Runtime) Watch(ctx context.Context, out chan<- runtime.Event) error {
	const what = "watch containers"
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("%s: %w; see fs.inotify.max_user_instances", what, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{r: r, notify: notify, out: out, seen: map[string]observation{}, passed: map[string]string{}, ended: make(chan string)}
	defer func() {
		cancel()
		w.waits.Wait()
		_ = notify.Close() // opened only to read
	}()
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// watch is the state of one Watch. Its goroutine owns it.
type watch struct {
	r      *Runtime
	notify *fsnotify.Watcher
	out    chan<- runtime.Event

	at      string                 // watched folder: the root, or its nearest ancestor that exists
	seen    map[string]observation // by ID
	passed  map[string]string      // why a container is not watched, by ID
	started bool                   // whether to report new containers
	ended   chan string            // receives IDs of containers whose process has ended
	waits   sync.WaitGroup         // goroutines that send to ended
}

// observation is the last known state of a container.
type observation struct {
	phase runtime.ContainerState
	pid   int
	start uint64
}

func (w *watch) run(ctx context.Context) error {
	if err := w.scan(ctx); err != nil {
		return err
	}
	w.started = true
	w.r.log.Debug("watching containers", "folder", w.at, "containers", len(w.seen))
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case id := <-w.ended:
			err = w.check(ctx, id)
		case event, open := <-w.notify.Events:
			if !open {
				return fmt.Errorf("%w: the kernel sends no more events", runtime.ErrUnavailable)
			}
			err = w.notice(ctx, event.Name)
		case err = <-w.notify.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) { // some events were lost
				err = w.scan(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
}

// notice handles a change of a path.
func (w *watch) notice(ctx context.Context, path string) error {
	inside, found := strings.CutPrefix(path, w.r.path+"/")
	if !found || w.at != w.r.path {
		return w.scan(ctx)
	}
	id, _, _ := strings.Cut(inside, "/")
	return w.check(ctx, id)
}

// scan checks all containers in the root, and those that were there before.
func (w *watch) scan(ctx context.Context) error {
	if err := w.settle(); err != nil {
		return err
	}
	there := map[string]bool{}
	if w.at == w.r.path {
		root, err := w.r.store.open()
		if err == nil {
			var list []string
			list, err = ids(root)
			for _, id := range list {
				there[id] = true
			}
			err = errors.Join(err, root.Close())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for id := range w.seen {
		there[id] = true
	}
	for id := range there {
		if err := w.check(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// settle watches the root or, while it is missing, its nearest ancestor, in which the root or its
// parent will appear.
func (w *watch) settle() error {
	for {
		at := local.Existing(w.r.path)
		// Even if this path was watched before: it may be another folder of that name.
		if err := w.add(at); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // it was removed meanwhile
			}
			return err
		}
		if at == w.at {
			return nil
		}
		if w.at != "" {
			_ = w.notify.Remove(w.at) // it may have been removed
		}
		w.at = at // then check again: the root may have been created meanwhile
	}
}

func (w *watch) add(folder string) error {
	err := w.notify.Add(folder)
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w; see fs.inotify.max_user_watches", err)
	}
	return err
}

// check reads one container and reports its changes.
func (w *watch) check(ctx context.Context, id string) error {
	// Watch first, then read, so that no later change is missed.
	if err := w.add(filepath.Join(w.r.path, id)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	var now observation
	var image string
	var process *process
	err := w.r.store.one(id, func(c container) error {
		phase, err := c.phase(w.r.procRoot)
		now, image = observation{phase, c.state.pid, c.state.start}, c.state.annotations[annotationReference]
		if err != nil || phase == runtime.Exited || w.seen[id].same(now) {
			return err
		}
		process, err = hold(w.r.procRoot, now.pid, now.start)
		if errors.Is(err, errEnded) {
			now.phase, err = runtime.Exited, nil
		}
		return err
	})
	switch {
	case errors.Is(err, errNotFound):
		return w.gone(ctx, id)
	case errors.Is(err, runtime.ErrInvalidAnswer) || errors.Is(err, runtime.ErrTooLarge):
		return nil // it is being rewritten, or a list shows its state
	case err != nil: // does not affect other containers
		w.pass(id, err)
		return nil
	}
	delete(w.passed, id)
	if process != nil {
		w.await(ctx, id, process)
	}
	before, known := w.seen[id]
	w.seen[id] = now
	if known && before.same(now) && before.phase == now.phase {
		return nil
	}
	return w.send(ctx, eventTypeOf(now.phase), id, image)
}

// same reports whether both are of the same container, not only of the same ID.
func (s observation) same(other observation) bool {
	return s.pid == other.pid && s.start == other.start
}

// eventTypeOf returns the event for a container that has reached a phase.
func eventTypeOf(phase runtime.ContainerState) runtime.EventType {
	switch phase {
	case runtime.Created:
		return runtime.ContainerCreated
	case runtime.Running:
		return runtime.ContainerStarted
	case runtime.Exited:
		return runtime.ContainerExited
	}
	return runtime.Changed
}

// pass logs once that a container cannot be watched.
func (w *watch) pass(id string, err error) {
	if text := err.Error(); w.passed[id] != text {
		w.passed[id] = text
		w.r.log.Warn("cannot watch container", "container", id, "error", err)
	}
}

func (w *watch) gone(ctx context.Context, id string) error {
	delete(w.passed, id)
	if _, known := w.seen[id]; !known {
		return nil
	}
	delete(w.seen, id)
	return w.send(ctx, runtime.ContainerRemoved, id, "")
}

// await sends the ID of a container when its process ends.
func (w *watch) await(ctx context.Context, id string, p *process) {
	w.waits.Go(func() {
		defer p.close()
		if p.await(ctx) != nil {
			return // the watch has ended
		}
		select {
		case w.ended <- id:
		case <-ctx.Done():
		}
	})
}

func (w *watch) send(ctx context.Context, kind runtime.EventType, id, image string) error {
	if !w.started {
		return nil
	}
	event := runtime.Event{Runtime: w.r.name, Type: kind, ContainerID: id, Time: time.Now()}
	if kind == runtime.ContainerCreated {
		event.Image = image
	}
	select {
	case w.out <- event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
