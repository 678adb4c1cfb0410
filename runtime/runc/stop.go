package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/moby/sys/signal"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc/program"
)

// target is a container that runs, held.
type target struct {
	what    string // is done to it
	id      string
	state   state
	first   *process
	cgroup  *cgroup // nil where it has none of its own
	parents []int   // those that its first process has come from
	created bool    // and not started yet
}

func (t *target) close() {
	t.first.close()
	if t.cgroup != nil {
		t.cgroup.close()
	}
}

// hold holds a container that was listed: errNotFound or errEnded where it does not run.
func (r *Runtime) hold(what string, listed runtime.Container) (*target, error) {
	t := &target{what: what, id: listed.ID}
	err := r.store.one(listed.ID, func(c container) error {
		if !c.is(listed) {
			return errNotFound
		}
		phase, err := c.phase(r.procRoot)
		if err == nil && phase == runtime.Exited {
			err = errEnded
		}
		if err != nil {
			return err
		}
		t.state, t.created = c.state, phase == runtime.Created
		t.first, err = hold(r.procRoot, c.state.pid, c.state.start)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.parents = ancestors(r.procRoot, t.state.pid)
	if others, err := r.foreignProcesses(t); err == nil { // else there is no telling who is one
		t.cgroup = enclosing(t.state, others)
	}
	return t, nil
}

// foreignProcesses are known processes that do not belong to a container: PID 1, hostler, the
// ancestors of its first process, and the first process of each other container of the root, with
// any manager. It fails if another container does not report its own.
func (r *Runtime) foreignProcesses(t *target) (map[int]bool, error) {
	others := map[int]bool{1: true, os.Getpid(): true}
	for _, pid := range t.parents {
		others[pid] = true
	}
	var failed error
	err := r.store.all(func(c container) bool {
		switch {
		case c.id == t.id:
		case c.err == nil:
			if alive, err := lives(r.procRoot, c.state.pid, c.state.start); alive || err != nil {
				others[c.state.pid] = true
			}
		case c.state.pid > 0:
			others[c.state.pid] = true
		default:
			failed = fmt.Errorf("list processes of container %q: %w", c.id, c.err)
		}
		return failed == nil
	})
	return others, errors.Join(err, failed)
}

// running holds a container and does something to it, and nothing where it does not run.
func (r *Runtime) running(ctx context.Context, what string, listed runtime.Container, do func(*target) error) error {
	if listed.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	var t *target
	err := r.call(ctx, "Hold", what, func() (err error) {
		t, err = r.hold(what, listed)
		if errors.Is(err, errNotFound) || errors.Is(err, errEnded) {
			return nil
		}
		return err
	})
	if err != nil || t == nil {
		return err
	}
	defer t.close()
	if t.created {
		return nil
	}
	return do(t)
}

// StopContainer sends the stop signal of the container's image to its first process,
// resumes a container that is paused, which would not notice, and kills all of it after
// grace. A container that was created and not started runs nothing yet: it is left to
// whoever is about to start it. A systemd unit that runs the container, and would start it again,
// is stopped as soon as that has ended.
func (r *Runtime) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	return r.stopContainer(ctx, c, grace, true)
}

// EndContainer is StopContainer for a container that was sent the stop signal already: to some
// programs a second signal means more.
func (r *Runtime) EndContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	return r.stopContainer(ctx, c, grace, false)
}

func (r *Runtime) stopContainer(ctx context.Context, c runtime.Container, grace time.Duration, ask bool) error {
	return r.running(ctx, local.Named("stop container", c.Name, c.ID), c, func(t *target) error {
		unit := ""
		if c.Unit != "" { // else its list has shown no client, and each search for one takes all processes
			unit = unitOf(t.id, t.parents, r.clients())
		}
		if unit == "" {
			_, err := r.end(ctx, t, grace, ask)
			return err
		}
		runtime.ReportUnitStops(ctx, []string{unit}) // which may end with its container
		killed := false
		held, err := r.unitStops.Stop(ctx, r.stopOf(unit), t.id, grace, nil, func() (err error) {
			killed, err = r.end(ctx, t, grace, ask)
			return err
		})
		if err == nil && !held {
			_, err = r.stopOf(unit).Begin(ctx, t.what, 0)
		}
		if err == nil && killed {
			err = fmt.Errorf("%s: %w", t.what, runtime.ErrKilled)
		}
		return err
	})
}

// end ends a container, and returns whether it was killed.
func (r *Runtime) end(ctx context.Context, t *target, grace time.Duration, ask bool) (killed bool, err error) {
	if grace > 0 {
		over, err := r.terminate(ctx, t, grace, ask)
		if over || err != nil {
			return false, err
		}
	}
	return true, r.kill(ctx, t, r.timeouts.StopMargin)
}

var errGraceOver = errors.New("grace period expired")

// terminate asks a container to end, unless it is not to, and reports whether it has within its
// grace.
func (r *Runtime) terminate(ctx context.Context, t *target, grace time.Duration, ask bool) (over bool, err error) {
	asked := time.Now()
	waiting, cancel := context.WithTimeoutCause(ctx, grace, errGraceOver)
	defer cancel()
	if ask {
		err = r.call(ctx, "Signal", t.what, func() error { return t.first.signal(r.stopSignal(t)) })
	}
	if err != nil {
		return false, err
	}
	if t.cgroup != nil {
		t.cgroup.thaw()
	}
	switch err := t.first.await(waiting); {
	case err == nil:
		return true, r.sweep(ctx, t)
	case ctx.Err() != nil:
		return false, fmt.Errorf("%s: %w after %v of its grace period of %v", t.what, context.Cause(ctx), time.Since(asked).Round(time.Millisecond), grace)
	case waiting.Err() == nil:
		return false, fmt.Errorf("%s: %w", t.what, err)
	}
	return false, nil
}

// stopSignal is what the container is to be stopped with. The annotation is what the
// image specification has tools write that unpack an image (conversion.md).
func (r *Runtime) stopSignal(t *target) syscall.Signal {
	text := t.state.annotations[annotationStopSignal]
	if text == "" && r.signalOf != nil {
		text = r.signalOf(t.id)
	}
	if text == "" {
		return unix.SIGTERM
	}
	parsed, err := signal.ParseSignal(text)
	if err != nil {
		r.log.Warn("unknown stop signal of container, sent SIGTERM instead", "signal", text, "pid", t.state.pid)
		return unix.SIGTERM
	}
	return parsed
}

// kill ends a container, and waits until it has ended. The first process takes all of its
// own PID namespace along, and ends as the last of it (pid_namespaces(7)); what has none is
// killed by its cgroup.
func (r *Runtime) kill(ctx context.Context, t *target, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("still running %v after SIGKILL", timeout))
	defer cancel()
	return r.call(ctx, "Kill", t.what, func() error {
		if err := t.first.signal(unix.SIGKILL); err != nil {
			return err
		}
		if t.cgroup != nil {
			t.cgroup.thaw()
		}
		if t.cgroup != nil && !t.state.ownPIDs {
			switch err := t.cgroup.kill(ctx, func() (map[int]bool, error) { return r.foreignProcesses(t) }); {
			case errors.Is(err, errShared):
				r.log.Warn("killing only the first process of container", "container", t.id, "error", err)
			case err != nil:
				return fmt.Errorf("kill processes in its cgroup: %w", err)
			}
		}
		return t.first.await(ctx)
	})
}

// sweep kills what a container leaves whose processes do not end with the first, as runc
// does when it deletes one.
func (r *Runtime) sweep(ctx context.Context, t *target) error {
	if t.state.ownPIDs || t.cgroup == nil {
		return nil
	}
	return r.kill(ctx, t, r.timeouts.StopMargin)
}

// StopPod kills the container that p is, if it still runs. There is nothing else to tear
// down.
func (r *Runtime) StopPod(ctx context.Context, p runtime.Pod) error {
	listed := runtime.Container{ID: p.ID, CreatedAt: p.CreatedAt}
	return r.running(ctx, local.Named("stop pod", p.Name, p.ID), listed, func(t *target) error {
		return r.kill(ctx, t, r.timeouts.Teardown)
	})
}

// RemoveContainer has runc or crun delete a container that does not run, with its cgroups
// and its hooks. The program itself refuses one that has been started meanwhile.
func (r *Runtime) RemoveContainer(ctx context.Context, c runtime.Container) error {
	what := local.Named("remove container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	return r.call(ctx, "Delete", what, func() error {
		err := r.delete(ctx, c)
		if errors.Is(err, errNotFound) {
			return nil
		}
		return err
	})
}

func (r *Runtime) delete(ctx context.Context, listed runtime.Container) error {
	var path string
	err := r.store.one(listed.ID, func(c container) error {
		if !c.is(listed) {
			return errNotFound
		}
		phase, err := c.phase(r.procRoot)
		// What is created and not started is about to be, but where that was known.
		if err == nil && phase != runtime.Exited && (phase != runtime.Created || listed.State != runtime.Created) {
			err = fmt.Errorf("%w: its state is %v; stop it first", runtime.ErrInUse, phase)
		}
		if err == nil {
			path, err = program.Find(c.state.program)
		}
		return err
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Remove)
	defer cancel()
	failed := program.Delete(ctx, path, r.path, listed.ID)
	if failed == nil {
		return nil
	}
	// Another client may have been quicker, or have started it.
	err = r.store.one(listed.ID, func(c container) error {
		if !c.is(listed) {
			return errNotFound
		}
		if phase, err := c.phase(r.procRoot); err != nil || phase != runtime.Running {
			return failed
		}
		return fmt.Errorf("%w: %w", runtime.ErrInUse, failed)
	})
	if err == nil {
		err = failed
	}
	return err
}

// RemovePod is runtime.ErrUnsupported: a pod goes with its container.
func (r *Runtime) RemovePod(_ context.Context, p runtime.Pod) error {
	return fmt.Errorf("%s: %w: it is removed with its container", local.Named("remove pod", p.Name, p.ID), runtime.ErrUnsupported)
}
