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

// eventMapping maps an event of Docker to an event of hostler.
type eventMapping struct {
	kind   events.Type
	action events.Action
	event  runtime.EventType
}

// eventMappings returns the events after which a list changes. Docker does not send others, because
// each health check would cause three. If BuildKit or `docker commit` creates an image, the event
// is a tag or a container's commit.
func eventMappings() []eventMapping {
	return []eventMapping{
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

// Watch delivers Docker's events until ctx or the stream ends. A restart of dockerd ends the
// stream. Callers list after they begin to watch, and regularly.
func (r *Runtime) Watch(ctx context.Context, out chan<- runtime.Event) error {
	list := eventMappings()
	filters := client.Filters{}
	for _, m := range list {
		filters.Add("type", string(m.kind)).Add("event", string(m.action))
	}
	open := func(ctx context.Context, c *client.Client) (client.EventsResult, error) {
		// dockerd answers just before it subscribes. With since, it repeats the events between.
		since := strconv.FormatFloat(float64(time.Now().UnixMilli())/1000, 'f', 3, 64)
		stream := c.Events(ctx, client.EventsListOptions{Since: since, Filters: filters})
		select {
		case err := <-stream.Err: // the stream did not open
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

// translate returns hostler's event, and false if hostler does not use this one.
func translate(msg events.Message, list []eventMapping) (runtime.Event, bool) {
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
