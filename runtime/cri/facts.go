package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

const (
	// factsAtOnce bounds concurrent requests for one list of pods.
	factsAtOnce = 4
	// retryAfter is the pause after a failed request, so that one broken container does not cost
	// a call for each list.
	retryAfter = time.Minute
)

// fact has what a list of containers lacks and what never changes once it is known: the image and,
// for a dead container, its end.
type fact struct {
	imageID string

	ended      bool // finishedAt and exitCode are known
	finishedAt time.Time
	exitCode   int32

	failedAt time.Time // of the last request, if it failed
	hungAt   time.Time // when a request was last not answered
}

// facts has the facts about the containers of the last list.
type facts struct {
	mu   sync.Mutex
	byID map[string]fact
}

// complete returns the facts about each container, and queries the runtime for new containers.
// Facts that the runtime does not return stay unknown until a later list, so that no single
// container makes a list fail.
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
		if old.isIncomplete(c) && time.Since(old.failedAt) >= retryAfter {
			ask = append(ask, c)
		}
	}
	f.mu.Unlock()

	if len(ask) > 0 {
		f.ask(ctx, r, ask, known)
	}
	// Containers that are not in the list were removed.
	f.mu.Lock()
	f.byID = known
	f.mu.Unlock()

	return known
}

func (k fact) isIncomplete(c *criapi.Container) bool {
	return k.imageID == "" || !k.ended && c.GetState() == criapi.ContainerState_CONTAINER_EXITED
}

// ask requests missing facts and stores them in known. It gives up as soon as the runtime stops
// answering, because every further container would cost a deadline. Containers whose last request
// was not answered come last: they may hang alone.
func (f *facts) ask(ctx context.Context, r *Runtime, ask []*criapi.Container, known map[string]fact) {
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	slices.SortStableFunc(ask, func(a, b *criapi.Container) int { return known[a.GetId()].hungAt.Compare(known[b.GetId()].hungAt) })
	answers := make([]fact, len(ask))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(factsAtOnce)
	for i, c := range ask {
		answers[i] = known[c.GetId()]
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil // a call that is not made does not count as hung
			}
			err := answers[i].ask(ctx, r, c)
			switch {
			case err == nil:
				if !answers[i].failedAt.IsZero() {
					r.log.Info("container status readable again", "container", c.GetMetadata().GetName(), "id", c.GetId())
				}
				answers[i].failedAt = time.Time{}
			case errors.Is(err, runtime.ErrUnavailable) || ctx.Err() != nil:
				answers[i].hungAt = time.Now()
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

// ask completes one container's fact. If one part fails, the other is kept.
func (k *fact) ask(ctx context.Context, r *Runtime, c *criapi.Container) error {
	return errors.Join(k.queryEnd(ctx, r, c), k.queryImage(ctx, r, c))
}

// queryEnd requests when and how the container ended. A container that was removed meanwhile is not
// an error: it will not be in the next list.
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

// queryImage requests the image of a container's reference. It uses a tag only if there is no
// better reference, because the tag may point to another image by now.
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
// Kubernetes 1.29. Without it, image_ref is the ID in containerd, cri-dockerd and old CRI-O, but a
// name with a digest in later CRI-O.
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

// isImageID reports whether a reference is an ID: a SHA-256 digest, with or without its prefix.
func isImageID(ref string) bool {
	hex := strings.TrimPrefix(ref, "sha256:")
	return len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}
