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

// Watch reports containers that are created, started, end and are removed, until ctx ends: inotify
// reports the root and the folder of each container, pidfds report ends. It waits for a missing
// root. Earlier changes are not reported.
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
		_ = notify.Close() // nothing was written
	}()
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// watch is one Watch in progress. Its goroutine owns it.
type watch struct {
	r      *Runtime
	notify *fsnotify.Watcher
	out    chan<- runtime.Event

	at      string                 // folder that is watched: the root, or the nearest above that is there
	seen    map[string]observation // by ID
	passed  map[string]string      // why one was passed over, by ID
	started bool                   // report what is new from now on
	ended   chan string            // IDs of containers whose process has ended
	waits   sync.WaitGroup         // for these
}

// observation is how a container was seen last.
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
			if errors.Is(err, fsnotify.ErrEventOverflow) { // some were lost
				err = w.scan(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
}

// notice reads what a path is about.
func (w *watch) notice(ctx context.Context, path string) error {
	inside, found := strings.CutPrefix(path, w.r.path+"/")
	if !found || w.at != w.r.path {
		return w.scan(ctx)
	}
	id, _, _ := strings.Cut(inside, "/")
	return w.check(ctx, id)
}

// scan reads all containers, and at those that were there.
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

// settle watches the root, or where it is missing the nearest folder above, where it or
// what leads to it will come.
func (w *watch) settle() error {
	for {
		at := local.Existing(w.r.path)
		// Also where that is what was watched before: it may be another of that name.
		if err := w.add(at); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // it went meanwhile
			}
			return err
		}
		if at == w.at {
			return nil
		}
		if w.at != "" {
			_ = w.notify.Remove(w.at) // it may be gone
		}
		w.at = at // and once more: the root may have come since
	}
}

func (w *watch) add(folder string) error {
	err := w.notify.Add(folder)
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w; see fs.inotify.max_user_watches", err)
	}
	return err
}

// check reads one container and reports what has become of it.
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
		return nil // it is written again, or listed as it is
	case err != nil: // others are none the worse for it
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
	return w.send(ctx, meaning(now.phase), id, image)
}

// same reports whether both are of one container, and not of two of the same name.
func (s observation) same(other observation) bool {
	return s.pid == other.pid && s.start == other.start
}

// meaning is the event of a container that has come to a phase.
func meaning(phase runtime.ContainerState) runtime.EventType {
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

// pass reports once that a container cannot be watched.
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

// await reports the end of a process.
func (w *watch) await(ctx context.Context, id string, p *process) {
	w.waits.Go(func() {
		defer p.close()
		if p.await(ctx) != nil {
			return // the watch is over
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
