package docker

import (
	"context"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
)

// means says what an event of Docker's is to hostler.
type means struct {
	kind   events.Type
	action events.Action
	event  runtime.EventType
}

// meanings are the events that change what a list says. Others are not even sent: each
// health check of each container would be three. Where BuildKit or `docker commit` have
// made an image, a tag or a container's commit reports it.
func meanings() []means {
	return []means{
		{events.ContainerEventType, events.ActionCreate, runtime.ContainerCreated},
		{events.ContainerEventType, events.ActionStart, runtime.ContainerStarted},
		{events.ContainerEventType, events.ActionAttach, runtime.Changed},
		{events.ContainerEventType, events.ActionDie, runtime.ContainerExited},
		{events.ContainerEventType, events.ActionDestroy, runtime.ContainerRemoved},
		{events.ContainerEventType, events.ActionRename, runtime.Changed},
		{events.ContainerEventType, events.ActionUpdate, runtime.Changed},
		{events.ContainerEventType, events.ActionCommit, runtime.ImageAdded},
		{events.ImageEventType, events.ActionPull, runtime.ImageAdded},
		{events.ImageEventType, events.ActionLoad, runtime.ImageAdded},
		{events.ImageEventType, events.ActionImport, runtime.ImageAdded},
		{events.ImageEventType, events.ActionTag, runtime.Changed},
		{events.ImageEventType, events.ActionUnTag, runtime.Changed},
		{events.ImageEventType, events.ActionDelete, runtime.ImageRemoved},
	}
}

// Watch delivers events of Docker until ctx ends or the stream does, as it does when
// dockerd is restarted. A caller lists after it began to watch, and now and then.
func (r *Runtime) Watch(ctx context.Context, out chan<- runtime.Event) error {
	list := meanings()
	filters := client.Filters{}
	for _, m := range list {
		filters.Add("type", string(m.kind)).Add("event", string(m.action))
	}
	open := func(ctx context.Context, c *client.Client) (client.EventsResult, error) {
		// dockerd answers a moment before it subscribes; it repeats what came since.
		since := strconv.FormatFloat(float64(time.Now().UnixMilli())/1000, 'f', 3, 64)
		stream := c.Events(ctx, client.EventsListOptions{Since: since, Filters: filters})
		select {
		case err := <-stream.Err: // it was never opened
			return stream, err
		default:
			return stream, nil
		}
	}
	return engine.Stream(ctx, r.conn, "watch events of the runtime", r.timeouts.Query, open, func(ctx context.Context, stream client.EventsResult) error {
		r.facts.watch(1)
		defer r.facts.watch(-1)
		for {
			select {
			case msg := <-stream.Messages:
				event, ours := translate(msg, list)
				if !ours {
					continue
				}
				switch msg.Action {
				case events.ActionUpdate, events.ActionStart, events.ActionAttach:
					r.facts.change(event.ContainerID)
				}
				event.Runtime = r.name
				select {
				case out <- event:
				case <-ctx.Done():
					return ctx.Err()
				}
			case err := <-stream.Err:
				return err
			}
		}
	})
}

// translate says what an event means; false if it is none of ours.
func translate(msg events.Message, list []means) (runtime.Event, bool) {
	event := runtime.Event{Time: time.Unix(0, msg.TimeNano)}
	for _, m := range list {
		if m.kind != msg.Type || m.action != msg.Action {
			continue
		}
		event.Type = m.event
		switch {
		case msg.Action == events.ActionCommit:
			event.Image = msg.Actor.Attributes["imageID"]
		case msg.Type == events.ImageEventType:
			event.Image = msg.Actor.ID
		default:
			event.ContainerID = msg.Actor.ID
		}
		if m.event == runtime.ContainerCreated {
			event.Image = msg.Actor.Attributes["image"]
		}
		return event, true
	}
	return event, false
}
