package cri_test

import (
	"context"

	apievents "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
)

// forward passes the Fake's events to send until the stream ends.
func (s *server) forward(ctx context.Context, send func(runtime.Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	list := make(chan runtime.Event)
	done := make(chan error, 1)
	go func() { done <- s.fake.Watch(ctx, list) }()
	for {
		select {
		case e := <-list:
			if err := send(e); err != nil {
				cancel(err)
			}
		case err := <-done:
			return toStatus(err)
		}
	}
}

func (s *server) GetContainerEvents(_ *criapi.GetEventsRequest, stream criapi.RuntimeService_GetContainerEventsServer) error {
	if !s.criEvents {
		return status.Error(codes.Unimplemented, "method GetContainerEvents not implemented")
	}
	return s.forward(stream.Context(), func(e runtime.Event) error {
		kind, ok := map[runtime.EventType]criapi.ContainerEventType{
			runtime.ContainerCreated: criapi.ContainerEventType_CONTAINER_CREATED_EVENT,
			runtime.ContainerStarted: criapi.ContainerEventType_CONTAINER_STARTED_EVENT,
			runtime.ContainerExited:  criapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
			runtime.ContainerRemoved: criapi.ContainerEventType_CONTAINER_DELETED_EVENT,
		}[e.Type]
		if !ok {
			return nil
		}
		return stream.Send(&criapi.ContainerEventResponse{ContainerId: e.ContainerID, ContainerEventType: kind, CreatedAt: e.Time.UnixNano()})
	})
}

// eventServer is containerd's event service.
type eventServer struct {
	events.UnimplementedEventsServer
	s *server
}

func (e eventServer) Subscribe(req *events.SubscribeRequest, stream events.Events_SubscribeServer) error {
	if len(req.GetFilters()) == 0 {
		return status.Error(codes.InvalidArgument, "no filter: would deliver everybody's events")
	}
	return e.s.forward(stream.Context(), func(event runtime.Event) error {
		for _, env := range envelopes(event) {
			if err := stream.Send(env); err != nil {
				return err
			}
		}
		return nil
	})
}

// envelopes returns containerd's messages for an event, and similar ones that must be ignored: the
// end of an exec'd process on the same topic, and the event in another namespace.
func envelopes(e runtime.Event) []*types.Envelope {
	pack := func(namespace, topic string, body any) *types.Envelope {
		packed, err := typeurl.MarshalAny(body)
		if err != nil {
			panic(err)
		}
		return &types.Envelope{
			Timestamp: timestamppb.New(e.Time), Namespace: namespace, Topic: topic,
			Event: &anypb.Any{TypeUrl: packed.GetTypeUrl(), Value: packed.GetValue()},
		}
	}
	switch e.Type {
	case runtime.ContainerCreated:
		return []*types.Envelope{pack("k8s.io", "/containers/create", &apievents.ContainerCreate{ID: e.ContainerID, Image: e.Image})}
	case runtime.ContainerStarted:
		return []*types.Envelope{pack("k8s.io", "/tasks/start", &apievents.TaskStart{ContainerID: e.ContainerID, Pid: 42})}
	case runtime.ContainerExited:
		return []*types.Envelope{
			pack("k8s.io", "/tasks/exit", &apievents.TaskExit{ContainerID: e.ContainerID, ID: "probe", Pid: 43}),
			pack("moby", "/tasks/exit", &apievents.TaskExit{ContainerID: "else", ID: "else"}),
			pack("k8s.io", "/tasks/exit", &apievents.TaskExit{ContainerID: e.ContainerID, ID: e.ContainerID, Pid: 42}),
		}
	case runtime.ContainerRemoved:
		return []*types.Envelope{pack("k8s.io", "/containers/delete", &apievents.ContainerDelete{ID: e.ContainerID})}
	case runtime.ImageAdded:
		return []*types.Envelope{pack("k8s.io", "/images/create", &apievents.ImageCreate{Name: e.Image})}
	case runtime.ImageRemoved:
		return []*types.Envelope{pack("k8s.io", "/images/delete", &apievents.ImageDelete{Name: e.Image})}
	}
	return nil
}
