package containerd

import (
	"context"
	"fmt"

	apievents "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc"

	"hostler.io/hostler/runtime"
)

// topics are the events after which a list changes.
var topics = [...]string{
	"/containers/create", "/tasks/start", "/tasks/exit", "/containers/delete",
	"/images/create", "/images/update", "/images/delete",
}

// Subscribe opens a stream of the events in CRI's namespace.
func (s *Services) Subscribe(ctx context.Context) (grpc.ServerStreamingClient[types.Envelope], error) {
	filters := make([]string, len(topics))
	for i, topic := range topics {
		filters[i] = fmt.Sprintf("topic==%q,namespace==%q", topic, CRINamespace)
	}
	return events.NewEventsClient(s.Conn).Subscribe(ctx, &events.SubscribeRequest{Filters: filters})
}

// Event translates one event. It returns false for an event that hostler does not use.
func Event(e *types.Envelope) (runtime.Event, bool) {
	event := runtime.Event{Type: runtime.Changed}
	if e.GetTimestamp() != nil {
		event.Time = e.GetTimestamp().AsTime()
	}
	if e.GetNamespace() != CRINamespace || e.GetEvent() == nil {
		return event, false
	}
	// Even if an event cannot be decoded, something has changed.
	body, err := typeurl.UnmarshalAny(e.GetEvent())
	if err != nil {
		return event, true
	}
	switch body := body.(type) {
	case *apievents.ContainerCreate:
		event.Type, event.ContainerID, event.Image = runtime.ContainerCreated, body.GetID(), body.GetImage()
	case *apievents.TaskStart:
		event.Type, event.ContainerID = runtime.ContainerStarted, body.GetContainerID()
	case *apievents.TaskExit:
		// The exit of a process that was exec'd into the container, such as a probe, has the same
		// topic.
		if body.GetID() != "" && body.GetID() != body.GetContainerID() {
			return event, false
		}
		event.Type, event.ContainerID = runtime.ContainerExited, body.GetContainerID()
	case *apievents.ContainerDelete:
		event.Type, event.ContainerID = runtime.ContainerRemoved, body.GetID()
	case *apievents.ImageCreate:
		event.Type, event.Image = runtime.ImageAdded, body.GetName()
	case *apievents.ImageUpdate:
		event.Image = body.GetName() // its name now points to another image, or its labels changed
	case *apievents.ImageDelete:
		event.Type, event.Image = runtime.ImageRemoved, body.GetName()
	}
	return event, true
}
