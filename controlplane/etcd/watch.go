package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
)

// shortWatch is the minimum duration of a watch that is restarted. A shorter one is restarted only
// once, to prevent a tight loop.
const shortWatch = time.Second

// errRestartWatch makes a watch start again with a read of the object.
var errRestartWatch = errors.New("the watch has to restart")

// Watch follows an object. At each start it reads the object first, and then follows over the same
// connection. So it never waits for a revision that a restored backup has not reached, and a
// compaction loses nothing.
func (s *Store) Watch(ctx context.Context, key objects.Key, seen chan<- objects.Object) error {
	operation := s.on("watch", key, "read")
	return s.dialer.watch(ctx, operation, func(ctx context.Context, c *conn, late *time.Timer) error {
		return s.follow(ctx, c, key, seen, late)
	})
}

// watch calls follow over one connection after the other, as long as follow returns
// errRestartWatch. late cancels follow after callTimeout, unless follow stops it.
func (d *dialer) watch(ctx context.Context, what call, follow func(ctx context.Context, c *conn, late *time.Timer) error) error {
	for short := false; ; {
		began, again := time.Now(), short
		err := d.watchOnce(ctx, what, follow)
		if ctx.Err() != nil {
			return fmt.Errorf("%s %s: %w", what.operation, what.object, context.Cause(ctx))
		}
		if !errors.Is(err, errRestartWatch) {
			return err
		}
		if short = time.Since(began) < shortWatch; short && again {
			return fmt.Errorf("%s %s: %w: %s ends the watch at once", what.operation, what.object, controlplane.ErrUnavailable, d.endpoint())
		}
	}
}

// watchOnce calls follow over one connection.
func (d *dialer) watchOnce(ctx context.Context, what call, follow func(ctx context.Context, c *conn, late *time.Timer) error) error {
	finding, found := controlplane.Bound(ctx, callTimeout)
	defer found()
	c, err := d.Acquire(finding)
	if err != nil {
		return d.o.fault(finding, what, d.endpoint(), err)
	}
	defer d.Release(c)
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(callTimeout, func() { cancel(controlplane.ErrNoAnswer) })
	defer late.Stop()
	err = follow(clientv3.WithRequireLeader(ctx), c, late)
	if errors.Is(err, errRestartWatch) {
		return err
	}
	if mustRedial(err) && !cancelled(caller) {
		d.tryNext(c)
	}
	return d.o.fault(ctx, what, c.endpoint, err)
}

// follow sends the object, and then each change. When the server has confirmed the watch, it stops
// late.
func (s *Store) follow(ctx context.Context, c *conn, key objects.Key, seen chan<- objects.Object, late *time.Timer) error {
	object, revision, err := s.read(ctx, c, key)
	if err != nil {
		return err
	}
	w, err := c.watch(ctx, &etcdserverpb.WatchCreateRequest{Key: []byte(s.path(key))}, position{revision: revision})
	if err != nil {
		return err
	}
	report := seen
	for {
		select {
		case report <- object:
			report = nil
		case answer := <-w.answers:
			late.Stop()
			if err := w.at.pass(answer); err != nil {
				return err
			}
			if len(answer.Events) > 0 {
				object, report = c.changed(key, answer), seen
			}
		case err := <-w.failed:
			return err
		case <-c.Replaced():
			return errRestartWatch
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watching is a watch in progress over one connection.
type watching struct {
	stream  etcdserverpb.Watch_WatchClient
	answers <-chan *etcdserverpb.WatchResponse
	failed  <-chan error
	at      position
}

// watch requests the changes of some keys after a position.
func (c *conn) watch(ctx context.Context, request *etcdserverpb.WatchCreateRequest, after position) (*watching, error) {
	stream, err := c.watches.Watch(ctx)
	if err != nil {
		return nil, rpctypes.Error(err)
	}
	request.StartRevision, request.ProgressNotify, request.Fragment = after.revision+1, true, true
	// Recv returns the error of a failed Send.
	_ = stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: request}})
	answers, failed := make(chan *etcdserverpb.WatchResponse), make(chan error, 1)
	go func() {
		for {
			answer, err := stream.Recv()
			if err != nil {
				failed <- rpctypes.Error(err)
				return
			}
			select {
			case answers <- answer:
			case <-ctx.Done():
				return
			}
		}
	}()
	return &watching{stream, answers, failed, after}, nil
}

// position is the cluster and the revision that the last answer came from.
type position struct {
	cluster  uint64 // 0 while it is unknown
	revision int64
}

// pass checks and records the next answer of a watch. It returns an error if the watch cannot
// continue from the previous answer.
func (p *position) pass(answer *etcdserverpb.WatchResponse) error {
	if p.cluster == 0 {
		p.cluster = answer.Header.ClusterId
	}
	switch {
	case answer.Header.ClusterId != p.cluster, answer.Header.Revision < p.revision, answer.CompactRevision > 0:
		return errRestartWatch
	case answer.Canceled:
		return refused(answer.CancelReason)
	}
	p.revision = answer.Header.Revision
	return nil
}

// changed returns the object after the last of some changes.
func (c *conn) changed(key objects.Key, answer *etcdserverpb.WatchResponse) objects.Object {
	last := answer.Events[len(answer.Events)-1]
	if last.Type == mvccpb.DELETE {
		return c.learn(key, answer.Header, nil)
	}
	return c.learn(key, answer.Header, []*mvccpb.KeyValue{last.Kv})
}

// refused returns the error for a watch that the server has cancelled. The reason is only in the
// text.
func refused(reason string) error {
	for _, known := range []error{rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCNoLeader} {
		if err := rpctypes.Error(known); reason == known.Error() || reason == err.Error() {
			return err
		}
	}
	return errors.New(reason)
}
