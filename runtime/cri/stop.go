package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// StopContainer sends the stop signal, and kills the container after grace. CRI uses whole seconds:
// a grace is rounded up, and only zero or less kills at once. Stopping a missing container
// succeeds. If ctx ends before the grace, the error is context.DeadlineExceeded, which is not a
// fault of the runtime. containerd then does not kill the container.
func (r *Runtime) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	what := local.Named("stop container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	grace = max(grace, 0)
	seconds := int64(grace / time.Second)
	if grace%time.Second != 0 {
		seconds++
	}
	// containerd converts the seconds to a time.Duration, which must not overflow.
	seconds = min(seconds, math.MaxInt32)
	timeout := time.Duration(seconds)*time.Second + r.timeouts.StopMargin
	start := time.Now()
	err := r.call(ctx, "StopContainer", what, timeout, func(ctx context.Context) error {
		_, err := r.cri.StopContainer(ctx, &criapi.StopContainerRequest{ContainerId: c.ID, Timeout: seconds})
		return err
	})
	took := time.Since(start)
	switch {
	case errors.Is(err, errNotFound):
		return nil
	case errors.Is(err, context.DeadlineExceeded) && took < grace:
		return fmt.Errorf("%s: %w after %v of its grace period of %v", what, context.DeadlineExceeded, took.Round(time.Millisecond), grace)
	}
	return err
}

// StopPod stops the sandbox: this kills its containers and frees its network. Stopping a missing
// pod succeeds.
func (r *Runtime) StopPod(ctx context.Context, p runtime.Pod) error {
	what := local.Named("stop pod", p.Name, p.ID)
	if p.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	err := r.call(ctx, "StopPodSandbox", what, r.timeouts.Teardown, func(ctx context.Context) error {
		_, err := r.cri.StopPodSandbox(ctx, &criapi.StopPodSandboxRequest{PodSandboxId: p.ID})
		return err
	})
	if errors.Is(err, errNotFound) {
		return nil
	}
	return err
}

// RemoveContainer removes a container that is dead or was never started. CRI's own call kills a
// running container, so the state is checked just before. CRI cannot prevent the loss of a
// container that is started between the two calls. A container of unknown state may run, so the
// result is ErrInUse until it was stopped.
func (r *Runtime) RemoveContainer(ctx context.Context, c runtime.Container) error {
	what := local.Named("remove container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	s, err := r.containerStatus(ctx, c.ID, c.Name)
	if errors.Is(err, errNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if s == nil {
		return fmt.Errorf("%s: %w: no status of the container", what, runtime.ErrInvalidAnswer)
	}
	switch state := containerState(s.GetState()); state {
	case runtime.Exited, runtime.Created:
	default:
		return fmt.Errorf("%s: %w: its state is %v; stop it first", what, runtime.ErrInUse, state)
	}
	err = r.call(ctx, "RemoveContainer", what, r.timeouts.Remove, func(ctx context.Context) error {
		_, err := r.cri.RemoveContainer(ctx, &criapi.RemoveContainerRequest{ContainerId: c.ID})
		return err
	})
	if errors.Is(err, errNotFound) {
		return nil
	}
	return err
}

// RemovePod removes the sandbox of a dead and empty pod. CRI kills and removes everything in the
// sandbox, so both are checked just before. Runtimes create no container in a sandbox that is not
// ready, so none can appear after the check.
func (r *Runtime) RemovePod(ctx context.Context, p runtime.Pod) error {
	what := local.Named("remove pod", p.Name, p.ID)
	if p.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	err := r.checkRemovable(ctx, what, p.ID)
	if err == nil {
		// As kubelet does: free network resources that were left by a crash.
		err = r.StopPod(ctx, p)
	}
	if err == nil {
		err = r.call(ctx, "RemovePodSandbox", what, r.timeouts.Remove, func(ctx context.Context) error {
			_, err := r.cri.RemovePodSandbox(ctx, &criapi.RemovePodSandboxRequest{PodSandboxId: p.ID})
			return err
		})
	}
	if errors.Is(err, errNotFound) {
		return nil
	}
	return err
}

// checkRemovable returns an error for a sandbox that is ready or has containers.
func (r *Runtime) checkRemovable(ctx context.Context, what, id string) error {
	var sandbox *criapi.PodSandboxStatusResponse
	err := r.call(ctx, "PodSandboxStatus", what+": get its status", r.timeouts.Query, func(ctx context.Context) (err error) {
		sandbox, err = r.cri.PodSandboxStatus(ctx, &criapi.PodSandboxStatusRequest{PodSandboxId: id})
		return err
	})
	if err != nil {
		return err
	}
	switch status := sandbox.GetStatus(); {
	case status == nil:
		return fmt.Errorf("%s: %w: no status of the pod", what, runtime.ErrInvalidAnswer)
	case status.GetState() != criapi.PodSandboxState_SANDBOX_NOTREADY:
		return fmt.Errorf("%s: %w: it is ready; stop it first", what, runtime.ErrInUse)
	}
	var left *criapi.ListContainersResponse
	err = r.call(ctx, "ListContainers", what+": list its containers", r.timeouts.Query, func(ctx context.Context) (err error) {
		left, err = r.cri.ListContainers(ctx, &criapi.ListContainersRequest{Filter: &criapi.ContainerFilter{PodSandboxId: id}})
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range left.GetContainers() {
		if c.GetPodSandboxId() == id {
			return fmt.Errorf("%s: %w: %d containers are left; remove them first", what, runtime.ErrInUse, len(left.GetContainers()))
		}
	}
	return nil
}
