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

// shortWatch is how long a watch lasts at least that is started again. One that ends sooner
// is started again once: else that would continue and on.
const shortWatch = time.Second

// errRestartWatch has a watch begin with the object as it is then.
var errRestartWatch = errors.New("the watch has to restart")

// Watch follows an object. Each time that it begins it reads it first, over the same
// connection, and follows from there: so that no watch waits for a revision that a
// restored backup is yet to reach, and none is lost by a compaction.
func (s *Store) Watch(ctx context.Context, key objects.Key, seen chan<- objects.Object) error {
	operation := call{"watch", key.String(), "read", s.path(key)}
	for short := false; ; {
		began, again := time.Now(), short
		err := s.watchOnce(ctx, operation, key, seen)
		if ctx.Err() != nil {
			return fmt.Errorf("watch %s: %w", key, context.Cause(ctx))
		}
		if !errors.Is(err, errRestartWatch) {
			return err
		}
		if short = time.Since(began) < shortWatch; short && again {
			return fmt.Errorf("watch %s: %w: %s ends the watch at once", key, controlplane.ErrUnavailable, s.Endpoint())
		}
	}
}

// watchOnce follows an object over one connection, until that is replaced or fails.
func (s *Store) watchOnce(ctx context.Context, operation call, key objects.Key, seen chan<- objects.Object) error {
	finding, found := bound(ctx, key.Kind)
	defer found()
	c, err := s.dialer.Acquire(finding)
	if err != nil {
		return s.fault(finding, operation, s.Endpoint(), err)
	}
	defer s.dialer.Release(c)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(callTimeout, func() { cancel(controlplane.ErrNoAnswer) })
	defer late.Stop()
	err = s.follow(clientv3.WithRequireLeader(ctx), c, key, seen, late)
	if errors.Is(err, errRestartWatch) {
		return err
	}
	if mustRedial(err) {
		s.dialer.tryNext(c)
	}
	return s.fault(ctx, operation, c.endpoint, err)
}

// follow sends the object as it is, and then each change. It stops late once the server
// has taken the watch on.
func (s *Store) follow(ctx context.Context, c *conn, key objects.Key, seen chan<- objects.Object, late *time.Timer) error {
	object, revision, err := s.read(ctx, c, key)
	if err != nil {
		return err
	}
	stream, err := c.watches.Watch(ctx)
	if err != nil {
		return rpctypes.Error(err)
	}
	// What has gone wrong with what is sent is said to who receives.
	_ = stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{
		Key: []byte(s.path(key)), StartRevision: revision + 1, ProgressNotify: true, Fragment: true,
	}}})
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
	tell, cluster := seen, uint64(0)
	for {
		select {
		case tell <- object:
			tell = nil
		case answer := <-answers:
			late.Stop()
			if cluster == 0 {
				cluster = answer.Header.ClusterId
			}
			switch {
			case answer.Header.ClusterId != cluster, answer.Header.Revision < revision, answer.CompactRevision > 0:
				return errRestartWatch
			case answer.Canceled:
				return refused(answer.CancelReason)
			}
			revision = answer.Header.Revision
			if len(answer.Events) > 0 {
				object, tell = c.changed(key, answer), seen
			}
		case err := <-failed:
			return err
		case <-c.Replaced():
			return errRestartWatch
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// changed is the object after the last of some changes.
func (c *conn) changed(key objects.Key, answer *etcdserverpb.WatchResponse) objects.Object {
	last := answer.Events[len(answer.Events)-1]
	if last.Type == mvccpb.DELETE {
		return c.learn(key, answer.Header, nil)
	}
	return c.learn(key, answer.Header, []*mvccpb.KeyValue{last.Kv})
}

// refused is why a server has cancelled a watch, which it tells by the text alone.
func refused(reason string) error {
	for _, known := range []error{rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCNoLeader} {
		if err := rpctypes.Error(known); reason == known.Error() || reason == err.Error() {
			return err
		}
	}
	return errors.New(reason)
}
