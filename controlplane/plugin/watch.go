package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	v1 "hostler.io/hostler/controlplane/plugin/v1"
)

// Watch implements objects.Store. If the plugin cannot watch, the object is read at intervals.
func (s *Store) Watch(ctx context.Context, key objects.Key, seen chan<- objects.Object) error {
	operation := "watch " + key.String()
	unimplemented := false
	err := s.do(ctx, operation, func(_ context.Context, a about) error {
		unimplemented = !a.watch
		return nil
	})
	if err != nil {
		return err
	}
	if !unimplemented {
		err = s.follow(ctx, operation, key, seen)
		unimplemented = errors.Is(err, errUnimplemented)
	}
	if unimplemented {
		return s.read(ctx, operation, key, seen)
	}
	return err
}

// follow sends the messages of a watch. It also calls Info regularly, to notice a plugin that
// hangs. gRPC's keepalive cannot do that: by default, servers refuse pings more often than every 5
// minutes.
func (s *Store) follow(ctx context.Context, operation string, key objects.Key, seen chan<- objects.Object) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// It also covers the wait for a new connection if the last one was lost after Info.
	unresponsive := time.AfterFunc(s.o.Timeout, func() { cancel(controlplane.ErrNoAnswer) })
	defer unresponsive.Stop()
	stream, err := s.rpc.Watch(ctx, &v1.WatchRequest{Key: wire(key)})
	if err != nil {
		return s.fault(ctx, operation, err)
	}
	probing := make(chan struct{})
	defer func() { cancel(nil); <-probing }()
	go func() {
		defer close(probing)
		s.checkAlive(ctx, cancel)
	}()
	for {
		object, err := s.receive(ctx, operation, key, stream)
		if err != nil {
			return err
		}
		unresponsive.Stop()
		select {
		case seen <- object:
		case <-ctx.Done():
			return s.fault(ctx, operation, ctx.Err())
		}
	}
}

// receive receives one change.
func (s *Store) receive(ctx context.Context, operation string, key objects.Key, stream grpc.ServerStreamingClient[v1.WatchResponse]) (objects.Object, error) {
	answer, err := stream.Recv()
	switch {
	case errors.Is(err, io.EOF) && ctx.Err() == nil:
		return objects.Object{}, s.invalidAnswer(operation, "has ended the watch")
	case err != nil:
		return objects.Object{}, reading(s.fault(ctx, operation, err))
	}
	return s.object(operation, key, answer.GetObject())
}

// checkAlive ends a watch when its plugin does not answer Info any more.
func (s *Store) checkAlive(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(s.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := s.Probe(ctx); err != nil && ctx.Err() == nil {
			end(fmt.Errorf("%w: %w", controlplane.ErrUnavailable, err))
		}
	}
}

// read reads the object regularly and sends changes.
func (s *Store) read(ctx context.Context, operation string, key objects.Key, seen chan<- objects.Object) error {
	tick := time.NewTicker(s.o.Poll)
	defer tick.Stop()
	for first, last := true, objects.None; ; first = false {
		object, err := s.Get(ctx, key)
		switch {
		case errors.Is(err, controlplane.ErrNotFound):
			object = objects.Object{Key: key}
		case err != nil:
			return err
		}
		if first || object.Version != last {
			last = object.Version
			select {
			case seen <- object:
			case <-ctx.Done():
				return fmt.Errorf("%s: %w", operation, context.Cause(ctx))
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", operation, context.Cause(ctx))
		}
	}
}
