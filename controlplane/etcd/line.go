package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
)

// line leads to the cluster: by one way at a time, to one of its members.
type line struct {
	o Options

	mu      sync.Mutex // guards all below
	way     *way       // nil where the next request has to find one
	opening *opening   // of a way; nil if none is under way
	first   int        // the endpoint that the next opening tries first
	closed  bool
}

// opening is the making of a way. It reads files, and a filesystem that does not answer
// holds it for as long as that lasts: requests need not wait for that long.
type opening struct {
	done  chan struct{} // closed when it has ended
	err   error         // why there is no way; of who has seen done closed
	stale bool          // it began before the way was to be a new one; guarded by the line's mu
}

// errClosed is what calls after Close get.
var errClosed = fmt.Errorf("%w: the client is closed", controlplane.ErrUnavailable)

func newLine(o Options) *line {
	// Each host another one first, for a fleet's sake.
	return &line{o: o, first: rand.IntN(len(o.Endpoints))}
}

// do makes a request over the line, and returns the way that it went last. One that ends
// as spent tells is the last on its way: the next one finds another, to the next endpoint,
// with credentials as they are then. Only what has surely changed nothing is repeated.
func (l *line) do(ctx context.Context, request func(context.Context, *way) error) (*way, error) {
	for tries := len(l.o.Endpoints); ; tries-- {
		w, err := l.find(ctx)
		if err != nil {
			return nil, err
		}
		err = request(clientv3.WithRequireLeader(ctx), w)
		if spent(err) {
			l.leave(w)
		}
		l.done(w)
		if !untouched(err) || tries <= 0 || ctx.Err() != nil {
			return w, err
		}
	}
}

// find returns the present way, or a new one, for a request that is under way from then on.
func (l *line) find(ctx context.Context) (*way, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		w, o, err := l.present()
		if w != nil || err != nil {
			return w, err
		}
		select {
		case <-o.done:
			if o.err != nil {
				return nil, o.err
			}
		case <-ctx.Done():
			return nil, &connectError{fmt.Errorf("connect to %s: %w", strings.Join(l.o.Endpoints, ", "), context.Cause(ctx))}
		}
	}
}

// present is the way that there is, for one more request, or else the making of one.
func (l *line) present() (*way, *opening, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, errClosed
	}
	if l.way != nil && !l.way.stands() {
		l.depart()
	}
	if l.way != nil {
		l.way.underWay++
		return l.way, nil, nil
	}
	if l.opening == nil {
		l.opening = &opening{done: make(chan struct{})}
		go l.open(l.opening, l.first)
	}
	return nil, l.opening, nil
}

// open makes a way to the first endpoint that can be used, beginning at one of them.
func (l *line) open(o *opening, first int) {
	// A connection serves whoever comes: it is no part of the call that has it made, as
	// labels would have it.
	pprof.SetGoroutineLabels(context.Background())
	for {
		var w *way
		var faults []error
		at := first
		for i := range l.o.Endpoints {
			at = (first + i) % len(l.o.Endpoints)
			var err error
			if w, err = l.o.connect(l.o.Endpoints[at]); err == nil {
				break
			}
			faults = append(faults, err)
		}
		var err error
		if w == nil {
			err = &connectError{errors.Join(faults...)}
		}
		if l.opened(o, w, at, err) {
			close(o.done)
			return
		}
	}
}

// opened takes up the way that was made, or why none could be. It returns false if that
// has to be done again.
func (l *line) opened(o *opening, w *way, at int, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		err = errClosed
	}
	if w != nil && (o.stale || l.closed) {
		w.close()
		w = nil
	}
	if o.stale && !l.closed {
		o.stale = false
		return false
	}
	l.opening, l.way, l.first, o.err = nil, w, at, err
	return true
}

// leave has the next request find another way.
func (l *line) leave(w *way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.way == w {
		l.first = (l.first + 1) % len(l.o.Endpoints)
		l.depart()
	}
}

// done notes that a request has ended. What others wait for on a way that was left may
// yet come: the last one closes it.
func (l *line) done(w *way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.underWay--; w.underWay == 0 && l.way != w {
		w.close()
	}
}

// depart leaves the present way, for callers that hold mu.
func (l *line) depart() {
	w := l.way
	l.way = nil
	close(w.left)
	if w.underWay == 0 {
		w.close()
	}
}

// renew leaves the present way. Requests under way on it end as they would.
func (l *line) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opening != nil {
		l.opening.stale = true
	}
	if l.way != nil {
		l.depart()
	}
}

// close closes all connections for good.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed = true; l.way != nil {
		l.depart()
	}
}

// endpoint is the URL of the member that is talked to, or would be.
func (l *line) endpoint() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.way != nil {
		return l.way.endpoint
	}
	return l.o.Endpoints[l.first]
}
