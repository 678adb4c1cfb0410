package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane/objects"
)

const (
	// shareTTL is the part of their TTL within which objects may share an etcd lease: 3 minutes of an
	// hour.
	shareTTL = 20
	// shareMost is the maximum number of objects that share an etcd lease: it ends with all its keys
	// in one step.
	shareMost = 1000
)

// leases are the etcd leases of this process. It never revokes one: that would delete every key
// that is attached at that time.
type leases struct {
	granting chan struct{} // held while a shared one is requested: the next caller needs the same one

	mu     sync.Mutex               // guards the fields below
	own    map[objects.Key]grant    // of Leases: each has its own
	shared map[time.Duration]*share // of all other objects, by TTL
}

// grant is an etcd lease.
type grant struct {
	id  clientv3.LeaseID
	ttl time.Duration // the requested TTL
}

// share is an etcd lease of several objects.
type share struct {
	id    clientv3.LeaseID
	since time.Time
	users int
}

func newLeases() leases {
	return leases{granting: make(chan struct{}, 1), own: map[objects.Key]grant{}, shared: map[time.Duration]*share{}}
}

// bind returns an etcd lease for an object, which lasts for the TTL from now on; none without a
// TTL. For a Lease, it is granted once and kept alive with each put.
func (l *leases) bind(ctx context.Context, c *conn, key objects.Key, ttl time.Duration) (clientv3.LeaseID, error) {
	switch {
	case ttl <= 0:
		return clientv3.NoLease, nil
	case key.Kind != objects.Lease:
		return l.join(ctx, c, ttl)
	}
	l.mu.Lock()
	g, granted := l.own[key]
	l.mu.Unlock()
	if granted && g.ttl == ttl {
		alive, err := keepAlive(ctx, c, g.id)
		if alive || err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
			return g.id, err
		}
	}
	id, err := newGrant(ctx, c, ttl)
	if err == nil {
		l.mu.Lock()
		l.own[key] = grant{id, ttl}
		l.mu.Unlock()
	}
	return id, err
}

// join returns an etcd lease that other objects may share.
func (l *leases) join(ctx context.Context, c *conn, ttl time.Duration) (clientv3.LeaseID, error) {
	select {
	case l.granting <- struct{}{}:
		defer func() { <-l.granting }()
	case <-ctx.Done():
		return clientv3.NoLease, context.Cause(ctx)
	}
	reuse := ttl / shareTTL
	if id := l.present(ttl, reuse); id != clientv3.NoLease {
		return id, nil
	}
	id, err := newGrant(ctx, c, ttl+reuse)
	if err == nil {
		l.mu.Lock()
		l.shared[ttl] = &share{id: id, since: time.Now(), users: 1}
		l.mu.Unlock()
	}
	return id, err
}

// present returns the shared etcd lease of that TTL and counts one more object. It returns none if
// the lease is too old or has too many objects.
func (l *leases) present(ttl, reuse time.Duration) clientv3.LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shared[ttl]
	if s == nil || s.users >= shareMost || time.Since(s.since) >= reuse {
		return clientv3.NoLease
	}
	s.users++
	return s.id
}

// drop forgets the etcd lease of a deleted object. It ends by itself.
func (l *leases) drop(key objects.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.own, key)
}

// forget forgets an etcd lease that has ended, so that the next put gets another one.
func (l *leases) forget(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, g := range l.own {
		if g.id == id {
			delete(l.own, key)
		}
	}
	for ttl, s := range l.shared {
		if s.id == id {
			delete(l.shared, ttl)
		}
	}
}

// newGrant requests an etcd lease. A server may grant a longer TTL: the minimum is about two
// seconds. Its ID is random, so that nobody guesses it. Some versions of etcd list all IDs, and everybody can keep an
// etcd lease alive: that it lasts proves nothing. Whoever lists it before its first put can attach an object.
func newGrant(ctx context.Context, c *conn, ttl time.Duration) (clientv3.LeaseID, error) {
	request := &etcdserverpb.LeaseGrantRequest{ID: 1 + rand.Int64N(math.MaxInt64), TTL: int64((ttl + time.Second - 1) / time.Second)}
	answer, err := c.leases.LeaseGrant(ctx, request)
	if err != nil {
		return clientv3.NoLease, fmt.Errorf("grant an etcd lease: %w", rpctypes.Error(err))
	}
	return clientv3.LeaseID(answer.ID), nil
}

// keepAlive restarts the TTL of an etcd lease. It returns false if the etcd lease does not exist
// any more.
func keepAlive(ctx context.Context, c *conn, id clientv3.LeaseID) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.leases.LeaseKeepAlive(ctx)
	if err == nil {
		// Recv returns the error of a failed Send.
		_ = stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)})
		var answer *etcdserverpb.LeaseKeepAliveResponse
		if answer, err = stream.Recv(); err == nil {
			return answer.TTL > 0, nil
		}
	}
	return false, fmt.Errorf("renew etcd lease: %w", rpctypes.Error(err))
}
