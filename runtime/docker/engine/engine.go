// Package engine is the connection to a daemon that serves the Docker Engine API over HTTP on a
// unix socket, such as Docker or Podman.
//
// It owns the negotiation of the API version, deadlines, the limit of calls to a busy daemon, and
// the classes of errors. It also has the operations that all such daemons need: stopping a
// container, and removing an image with its names.
package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

const (
	// maxIdle is how many connections stay open between calls.
	maxIdle = 4
	// wakingIdleTimeout is how long idle connections stay open to a daemon that exits when it has
	// no connections.
	wakingIdleTimeout = time.Second
)

// Conn is a connection to one daemon. It is safe for concurrent use.
type Conn struct {
	path       string
	observe    func(method string, took time.Duration, err error)
	transport  *http.Transport
	asks       limited
	socket     *local.Activation
	mayWake    func(context.Context) error // nil if connecting does not start the daemon
	current    atomic.Pointer[negotiated]
	generation atomic.Uint64
	open       context.Context // cancelled by Close
	close      context.CancelFunc
}

// negotiated is a client with the API version of the daemon.
type negotiated struct {
	*client.Client
	generation uint64 // in which the version was requested
}

// New prepares a connection to the socket at path, without connecting. observe is called after each
// call with the method's name, its duration, and its error.
func New(path string, observe func(method string, took time.Duration, err error)) *Conn {
	c := &Conn{path: path, observe: observe, socket: &local.Activation{Path: path}}
	c.open, c.close = context.WithCancel(context.Background())
	c.transport = &http.Transport{DialContext: c.dial, DisableCompression: true, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: time.Minute}
	c.asks = limited{&patient{RoundTripper: c.transport, closed: c.open, pending: map[string]*pendingRequest{}}}
	return c
}

// NewWaking is New for a daemon that is started by a connection and exits when it is idle.
// Connections are closed soon, so that it can exit. mayWake is called before a request that would
// start the daemon; its error prevents the request.
func NewWaking(socket *local.Activation, observe func(method string, took time.Duration, err error), mayWake func(context.Context) error) *Conn {
	c := New(socket.Path, observe)
	c.socket, c.mayWake, c.transport.IdleConnTimeout = socket, mayWake, wakingIdleTimeout
	return c
}

// Close closes the connections. Calls in progress fail with runtime.ErrUnavailable.
func (c *Conn) Close() error {
	c.close()
	c.transport.CloseIdleConnections()
	return nil
}

func (c *Conn) closed() error {
	return fmt.Errorf("%w: the connection to %s was closed", runtime.ErrUnavailable, c.path)
}

// Generation increases after a connection broke or was refused, since the daemon may have restarted.
// Facts about the daemon apply to one generation.
func (c *Conn) Generation() uint64 { return c.generation.Load() }

func (c *Conn) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if c.open.Err() != nil {
		return nil, net.ErrClosed
	}
	err := c.socket.Check()
	if err != nil && c.mayWake != nil {
		err = c.mayWake(ctx)
	}
	var conn net.Conn
	if err == nil {
		conn, err = local.Dial(ctx, c.path)
	}
	if err != nil {
		if ctx.Err() == nil {
			c.generation.Add(1)
		}
		return nil, err
	}
	return &watched{Conn: conn, dialed: c.generation.Load(), generation: &c.generation}, nil
}

// watched notices when the daemon closes a connection.
type watched struct {
	net.Conn
	dialed     uint64 // generation when the connection was made
	generation *atomic.Uint64
}

// Read implements net.Conn.
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.note(err)
	return n, err
}

// Write implements net.Conn. A writer may be the first to notice, and then closes the connection.
func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.note(err)
	return n, err
}

func (w *watched) note(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		// When a daemon stops, all its connections break; they count as one end.
		w.generation.CompareAndSwap(w.dialed, w.dialed+1)
	}
}

// client returns a client with the API version of the daemon. The version is requested after each
// start of the daemon. Concurrent callers each request it, so that none depends on another's
// deadline.
func (c *Conn) client(ctx context.Context) (*client.Client, error) {
	generation := c.generation.Load()
	if n := c.current.Load(); n != nil && n.generation == generation {
		return n.Client, nil
	}
	fresh, err := client.New(client.WithHost("unix://"+c.path),
		client.WithHTTPClient(&http.Client{Transport: c.asks, CheckRedirect: client.CheckRedirect}))
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %s: %w", c.path, err)
	}
	if _, err := fresh.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return nil, err
	}
	c.current.Store(&negotiated{fresh, generation})
	return fresh, nil
}

// Call makes one call with a deadline. Its error has the operation and an error class, and does not
// wrap the client's error. If the daemon was replaced by another version, Call requests the version
// again.
func (c *Conn) Call(ctx context.Context, method, what string, timeout time.Duration, call func(context.Context, *client.Client) error) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(c.open, cancel)()
	err := c.try(ctx, call)
	if err != nil && isOtherVersion(err) {
		c.current.Store(nil)
		err = c.try(ctx, call)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, c.classify(ctx, err, start))
	}
	c.observe(method, time.Since(start), err)
	return err
}

func (c *Conn) try(ctx context.Context, call func(context.Context, *client.Client) error) error {
	cl, err := c.client(ctx)
	if err != nil {
		return err
	}
	return call(ctx, cl)
}

// Get makes a call that returns a value.
func Get[T any](ctx context.Context, c *Conn, method, what string, timeout time.Duration, call func(context.Context, *client.Client) (T, error)) (T, error) {
	var answer T
	err := c.Call(ctx, method, what, timeout, func(ctx context.Context, cl *client.Client) (err error) {
		answer, err = call(ctx, cl)
		return err
	})
	return answer, err
}

// Stream opens a stream within timeout, and calls read, which may take longer. It does not call
// observe, because the duration of a stream has no meaning.
func Stream[T any](ctx context.Context, c *Conn, what string, timeout time.Duration, open func(context.Context, *client.Client) (T, error), read func(context.Context, T) error) error {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.open, func() { cancel(c.closed()) })()
	late := fmt.Errorf("%w: no answer from %s within %v (%w)", runtime.ErrUnavailable, c.path, timeout, context.DeadlineExceeded)
	timer := time.AfterFunc(timeout, func() { cancel(late) })
	defer timer.Stop()
	var stream T
	err := c.try(ctx, func(ctx context.Context, cl *client.Client) (err error) {
		stream, err = open(ctx, cl)
		return err
	})
	if err == nil && !timer.Stop() {
		err = late
	}
	if err == nil {
		err = read(ctx, stream)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w", what, c.classify(ctx, err, start))
}
