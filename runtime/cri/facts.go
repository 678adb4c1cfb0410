package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

const (
	// factsAtOnce bounds the questions that one list of pods asks at a time.
	factsAtOnce = 4
	// askAgainAfter is the pause after a question that failed, so that one
	// broken container does not cost a call with each list.
	askAgainAfter = time.Minute
)

// fact is what a list of containers lacks and what never changes once known:
// the image, and from death on the end.
type fact struct {
	imageID string

	ended      bool // finishedAt and exitCode are the runtime's answer
	finishedAt time.Time
	exitCode   int32

	failedAt time.Time // of the last question, if that failed
}

// facts keeps them for the containers of the last list.
type facts struct {
	mu   sync.Mutex
	byID map[string]fact
}

// complete returns the facts about each container. It queries the runtime for new containers. Facts
// that it does not return stay unknown until a later list: no single container can make a list
// fail.
func (f *facts) complete(ctx context.Context, r *Runtime, containers []*criapi.Container) map[string]fact {
	known := make(map[string]fact, len(containers))
	var ask []*criapi.Container
	f.mu.Lock()
	for _, c := range containers {
		old := f.byID[c.GetId()]
		if id := reportedImageID(c); id != "" {
			old.imageID = id
		}
		known[c.GetId()] = old
		if old.isIncomplete(c) && time.Since(old.failedAt) >= askAgainAfter {
			ask = append(ask, c)
		}
	}
	f.mu.Unlock()

	if len(ask) > 0 {
		f.ask(ctx, r, ask, known)
	}
	// Containers that are not in the list were removed: forget them.
	f.mu.Lock()
	f.byID = known
	f.mu.Unlock()

	return known
}

func (k fact) isIncomplete(c *criapi.Container) bool {
	return k.imageID == "" || !k.ended && c.GetState() == criapi.ContainerState_CONTAINER_EXITED
}

// ask fills in known. It gives up as soon as the runtime stops answering, which
// would cost a deadline for each container.
func (f *facts) ask(ctx context.Context, r *Runtime, ask []*criapi.Container, known map[string]fact) {
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	answers := make([]fact, len(ask))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(factsAtOnce)
	for i, c := range ask {
		answers[i] = known[c.GetId()]
		if ctx.Err() != nil {
			continue // calls that would not be made are not to be counted as failed
		}
		group.Go(func() error {
			err := answers[i].ask(ctx, r, c)
			switch {
			case err == nil:
				if !answers[i].failedAt.IsZero() {
					r.log.Info("container status readable again", "container", c.GetMetadata().GetName(), "id", c.GetId())
				}
				answers[i].failedAt = time.Time{}
			case errors.Is(err, runtime.ErrUnavailable) || ctx.Err() != nil:
				return err
			default:
				if answers[i].failedAt.IsZero() {
					r.log.Warn("cannot read container status", "container", c.GetMetadata().GetName(), "id", c.GetId(), "error", err)
				}
				answers[i].failedAt = time.Now()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		r.log.Debug("stopped reading status of containers", "error", err)
	}
	for i, c := range ask {
		known[c.GetId()] = answers[i]
	}
}

// ask completes one container's fact. What of it fails does not keep the rest.
func (k *fact) ask(ctx context.Context, r *Runtime, c *criapi.Container) error {
	return errors.Join(k.queryEnd(ctx, r, c), k.queryImage(ctx, r, c))
}

// queryEnd learns when and how the container ended. One that vanished meanwhile is
// no failure: it will not be in the next list.
func (k *fact) queryEnd(ctx context.Context, r *Runtime, c *criapi.Container) error {
	if k.ended || c.GetState() != criapi.ContainerState_CONTAINER_EXITED {
		return nil
	}
	s, err := r.containerStatus(ctx, c.GetId(), c.GetMetadata().GetName())
	switch {
	case errors.Is(err, errNotFound):
		return nil
	case err != nil:
		return err
	case s.GetState() != criapi.ContainerState_CONTAINER_EXITED:
		return fmt.Errorf("%w: container %q is listed as exited, but its status is %v", runtime.ErrInvalidAnswer, c.GetId(), s.GetState())
	}
	k.ended, k.finishedAt, k.exitCode = true, nanoTime(s.GetFinishedAt()), s.GetExitCode()
	return nil
}

// queryImage learns which image a container's reference leads to. A tag is asked
// only where there is nothing better, because it may have moved since.
func (k *fact) queryImage(ctx context.Context, r *Runtime, c *criapi.Container) error {
	ref := cmp.Or(c.GetImageRef(), c.GetImage().GetImage())
	if k.imageID != "" || ref == "" {
		return nil
	}
	var resp *criapi.ImageStatusResponse
	err := r.call(ctx, "ImageStatus", "get status of "+local.Named("image", ref, ""), r.timeouts.Query,
		func(ctx context.Context) (err error) {
			resp, err = r.image.ImageStatus(ctx, &criapi.ImageStatusRequest{Image: &criapi.ImageSpec{Image: ref}})
			return err
		})
	if err != nil {
		return err
	}
	if k.imageID = resp.GetImage().GetId(); k.imageID == "" {
		return fmt.Errorf("get status of %s: the image was removed", local.Named("image", ref, ""))
	}
	return nil
}

func (r *Runtime) containerStatus(ctx context.Context, id, name string) (*criapi.ContainerStatus, error) {
	var resp *criapi.ContainerStatusResponse
	err := r.call(ctx, "ContainerStatus", "get status of "+local.Named("container", name, id), r.timeouts.Query,
		func(ctx context.Context) (err error) {
			resp, err = r.cri.ContainerStatus(ctx, &criapi.ContainerStatusRequest{ContainerId: id})
			return err
		})
	return resp.GetStatus(), err
}

// reportedImageID returns the image ID if the list has it. The field image_id exists since
// Kubernetes 1.29. Before, image_ref is the ID in containerd, cri-dockerd and old CRI-O, but a name
// with a digest in later CRI-O.
func reportedImageID(c *criapi.Container) string {
	if id := c.GetImageId(); id != "" {
		return id
	}
	if ref := c.GetImageRef(); isImageID(ref) {
		return ref
	}
	if ref := c.GetImage().GetImage(); c.GetImageRef() == "" && isImageID(ref) {
		return ref
	}
	return ""
}

// isImageID reports whether a reference is an ID: a SHA-256, with or without its prefix.
func isImageID(ref string) bool {
	hex := strings.TrimPrefix(ref, "sha256:")
	return len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}
