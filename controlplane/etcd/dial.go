package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane/dial"
)

// dialer connects to one member of the cluster at a time.
type dialer struct {
	*dial.Shared[*conn]
	o     Options
	first atomic.Int64 // index of the endpoint that is tried first
	made  atomic.Int64 // number of connections so far
}

func newDialer(o Options) *dialer {
	d := &dialer{o: o}
	d.first.Store(rand.Int64N(int64(len(o.Endpoints)))) // spreads the hosts of a fleet over the members
	d.Shared = dial.New(d.dial, func(cause error) error {
		return &connectError{fmt.Errorf("connect to %s: %w", strings.Join(o.Endpoints, ", "), cause)}
	})
	return d
}

// dial connects to the first endpoint that serves requests.
func (d *dialer) dial() (*conn, error) {
	var faults []error
	first := d.first.Load()
	for i := range int64(len(d.o.Endpoints)) {
		at := (first + i) % int64(len(d.o.Endpoints))
		c, err := d.o.connect(d.o.Endpoints[at])
		if err == nil {
			d.first.Store(at)
			c.number = d.made.Add(1)
			return c, nil
		}
		faults = append(faults, err)
	}
	return nil, &connectError{errors.Join(faults...)}
}

// tryNext makes the next request connect to the next endpoint.
func (d *dialer) tryNext(c *conn) {
	if at := d.first.Load(); d.Current() == c {
		d.first.CompareAndSwap(at, (at+1)%int64(len(d.o.Endpoints)))
	}
	d.Drop(c)
}

// do makes a request, and returns the connection that served it last. After an error of mustRedial,
// the next request connects to the next endpoint, with credentials that are read again. do repeats
// a request only if it has certainly changed nothing.
func (d *dialer) do(ctx context.Context, request func(context.Context, *conn) error) (*conn, error) {
	for tries := len(d.o.Endpoints); ; tries-- {
		c, err := d.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		err = request(clientv3.WithRequireLeader(ctx), c)
		if mustRedial(err) && !cancelled(ctx) {
			d.tryNext(c)
		}
		d.Release(c)
		if !untouched(err) || tries <= 0 || ctx.Err() != nil {
			return c, err
		}
	}
}

// call is do with classified errors.
func (d *dialer) call(ctx context.Context, what call, request func(context.Context, *conn) error) error {
	c, err := d.do(ctx, request)
	if err == nil {
		return nil
	}
	endpoint := strings.Join(d.o.Endpoints, ", ")
	if c != nil {
		endpoint = c.endpoint
	}
	return d.o.fault(ctx, what, endpoint, err)
}

// endpoint returns the URL of the connected member, or of the endpoint that is tried first.
func (d *dialer) endpoint() string {
	if c := d.Current(); c != nil {
		return c.endpoint
	}
	return d.o.Endpoints[d.first.Load()]
}
