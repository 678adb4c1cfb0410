package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri/containerd"
)

// Watch delivers events of the runtime until ctx or the stream ends.
//
// It prefers containerd's own event service, if the socket has it: it exists in all versions,
// reports images, and its events are small. Otherwise, it uses CRI's GetContainerEvents in versions
// in which that is reliable. Neither confirms a subscription, so the first events may be missed.
// Callers list after they begin to watch, and regularly.
//
// A ContainerID may be the ID of a sandbox, because both services treat a sandbox as a container.
func (r *Runtime) Watch(ctx context.Context, out chan<- runtime.Event) error {
	err := r.watchContainerd(ctx, out)
	if errors.Is(err, runtime.ErrUnsupported) {
		err = r.watchCRI(ctx, out)
	}
	return err
}

func (r *Runtime) watchContainerd(ctx context.Context, out chan<- runtime.Event) error {
	return watch(ctx, r, "watch events of containerd", out, r.containerd().Subscribe, containerd.Event)
}

func (r *Runtime) watchCRI(ctx context.Context, out chan<- runtime.Event) error {
	const what = "watch events of the runtime"
	a, ok := r.fresh()
	if !ok {
		var err error
		if a, err = r.version(ctx); err != nil {
			return err
		}
	}
	if !hasSoundCRIEvents(a.name, a.version) {
		return fmt.Errorf("%s: %w: %s %s", what, runtime.ErrUnsupported, a.name, a.version)
	}
	err := watch(ctx, r, what, out,
		func(ctx context.Context) (grpc.ServerStreamingClient[criapi.ContainerEventResponse], error) {
			return r.cri.GetContainerEvents(ctx, &criapi.GetEventsRequest{})
		}, criEvent)
	// CRI-O without enable_pod_events ends the stream or, since 1.29, returns an error:
	// https://github.com/cri-o/cri-o/issues/7164
	if err != nil && (errors.Is(err, io.EOF) || strings.Contains(err.Error(), "not enabled")) {
		return fmt.Errorf("%s: %w: %v; enable_pod_events may be false in its configuration", what, runtime.ErrUnsupported, err)
	}
	return err
}

// hasSoundCRIEvents reports whether every reader of GetContainerEvents gets every event. Before
// containerd 2 and CRI-O 1.28, each event reached only one reader, and kubelet is a reader:
// https://github.com/containerd/containerd/issues/7318, https://github.com/cri-o/cri-o/issues/6466.
func hasSoundCRIEvents(name, version string) bool {
	parts := strings.SplitN(version, ".", 3)
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	minor := 0
	if len(parts) > 1 {
		// A minor version that is not a number counts as 0, with the older behavior.
		minor, _ = strconv.Atoi(parts[1])
	}
	switch name {
	case "containerd":
		return major >= 2
	case "cri-o":
		return major > 1 || major == 1 && minor >= 28
	}
	return false
}

// watch opens a stream within the deadline of a query, and passes its events on until it ends.
func watch[T any](ctx context.Context, r *Runtime, what string, out chan<- runtime.Event,
	open func(context.Context) (grpc.ServerStreamingClient[T], error), convert func(*T) (runtime.Event, bool),
) error {
	start := time.Now()
	streamCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A stream has no deadline, but opening one waits for the connection.
	late := fmt.Errorf("%w: no answer from %s within %v (%w)", runtime.ErrUnavailable, r.path, r.timeouts.Query, context.DeadlineExceeded)
	timer := time.AfterFunc(r.timeouts.Query, func() { cancel(late) })
	defer timer.Stop()
	stream, err := open(streamCtx)
	if err == nil && !timer.Stop() {
		err = late
	}
	for err == nil {
		var msg *T
		if msg, err = stream.Recv(); err != nil {
			break
		}
		event, ok := convert(msg)
		if !ok {
			continue
		}
		event.Runtime = r.name
		select {
		case out <- event:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	switch {
	case streamCtx.Err() != nil:
		return fmt.Errorf("%s: %w", what, context.Cause(streamCtx))
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: %w: the runtime ended the stream (%w)", what, runtime.ErrUnavailable, io.EOF)
	}
	return fmt.Errorf("%s: %w", what, r.classify(streamCtx, err, start, true))
}

// criEvent translates an event of CRI, which has no events of images.
func criEvent(e *criapi.ContainerEventResponse) (runtime.Event, bool) {
	event := runtime.Event{ContainerID: e.GetContainerId(), Time: nanoTime(e.GetCreatedAt())}
	switch e.GetContainerEventType() {
	case criapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		event.Type = runtime.ContainerStarted
	case criapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		event.Type = runtime.ContainerExited
	case criapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		event.Type = runtime.ContainerRemoved
	default:
		event.Type = runtime.Changed
	}
	return event, true
}
