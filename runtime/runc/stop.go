package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc/program"
)

// target is a running container with a descriptor of its first process.
type target struct {
	what    string // operation, for errors
	id      string
	state   state
	first   *process
	cgroup  *cgroup // nil if it has no cgroup of its own
	parents []int   // ancestors of its first process
	created bool    // created, but not started
}

func (t *target) close() {
	t.first.close()
	if t.cgroup != nil {
		t.cgroup.close()
	}
}

// hold returns a target for a listed container, or errNotFound or errEnded if it does not run.
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
	if others, err := r.foreignProcesses(t); err == nil { // else it is unknown which processes are foreign
		t.cgroup = enclosing(t.state, others)
	}
	return t, nil
}

// foreignProcesses returns processes that do not belong to the container. They are PID 1, hostler,
// the ancestors of its first process, and the first processes of all other containers of the root,
// with any manager. It fails if another container's first process cannot be read.
func (r *Runtime) foreignProcesses(t *target) (map[int]bool, error) {
	others := map[int]bool{1: true, os.Getpid(): true}
	for _, pid := range t.parents {
		others[pid] = true
	}
	var failed error
	err := r.store.all(func(c container) bool {
		switch {
		case c.id == t.id:
		case c.state.identified():
			if alive, err := isAlive(r.procRoot, c.state.pid, c.state.start); alive || err != nil {
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

// running calls do with a running container. It does nothing if the container does not run.
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

// StopContainer sends the stop signal of the container's image to its first process, and kills the
// container after grace. It resumes a paused container, which would not handle the signal. It does
// not touch a container that was created but not started: it runs nothing yet, and its creator is
// about to start it. If a systemd unit runs the container and would start it again, the unit is
// stopped as soon as the container has ended.
func (r *Runtime) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	return r.stopContainer(ctx, c, grace, true)
}

// EndContainer is StopContainer for a container that was already sent the stop signal. Some
// programs exit at once on a second signal.
func (r *Runtime) EndContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	return r.stopContainer(ctx, c, grace, false)
}

func (r *Runtime) stopContainer(ctx context.Context, c runtime.Container, grace time.Duration, ask bool) error {
	return r.running(ctx, local.Named("stop container", c.Name, c.ID), c, func(t *target) error {
		unit := ""
		if c.Unit != "" { // else the last list found no client
			unit = r.unitOf(t.id, t.parents)
		}
		if unit == "" {
			_, err := r.end(ctx, t, grace, ask)
			return err
		}
		if err := runtime.ReportUnitStops(ctx, []string{unit}); err != nil { // the unit may end with its container
			return fmt.Errorf("%s: %w", t.what, err)
		}
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

// end stops a container, and returns whether it was killed.
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

// terminate sends the stop signal if ask is set, and reports whether the container ended within its
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

// stopSignal returns the container's stop signal. According to the image specification
// (conversion.md), tools that unpack an image set the annotation.
func (r *Runtime) stopSignal(t *target) syscall.Signal {
	text := t.state.annotations[annotationStopSignal]
	if text == "" && r.signalOf != nil {
		text = r.signalOf(t.id)
	}
	parsed, err := local.ParseStopSignal(text)
	if err != nil {
		r.log.Warn("unknown stop signal of container, sent SIGTERM instead", "signal", text, "pid", t.state.pid)
	}
	return parsed
}

// kill kills a container, and waits until it has ended. When the first process of a PID namespace
// ends, the kernel kills the others first (pid_namespaces(7)). A container without its own
// namespace is killed through its cgroup.
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

// sweep kills the remaining processes of a container if they do not end with its first process, as
// runc does when it deletes one.
func (r *Runtime) sweep(ctx context.Context, t *target) error {
	if t.state.ownPIDs || t.cgroup == nil {
		return nil
	}
	return r.kill(ctx, t, r.timeouts.StopMargin)
}

// StopPod kills the container of p if it still runs. There is nothing else to tear down.
func (r *Runtime) StopPod(ctx context.Context, p runtime.Pod) error {
	listed := runtime.Container{ID: p.ID, CreatedAt: p.CreatedAt}
	return r.running(ctx, local.Named("stop pod", p.Name, p.ID), listed, func(t *target) error {
		return r.kill(ctx, t, r.timeouts.Teardown)
	})
}

// RemoveContainer deletes a container that does not run through runc or crun, with its cgroups and
// hooks. The program refuses a container that was started meanwhile.
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
		if c.err != nil { // it may have a manager, which removes it
			return c.err
		}
		phase, err := c.phase(r.procRoot)
		// A created container is about to be started, unless the list already showed it as created.
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
	// Another client may have removed or started it.
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

// RemovePod returns runtime.ErrUnsupported: a pod disappears with its container.
func (r *Runtime) RemovePod(_ context.Context, p runtime.Pod) error {
	return fmt.Errorf("%s: %w: it is removed with its container", local.Named("remove pod", p.Name, p.ID), runtime.ErrUnsupported)
}
