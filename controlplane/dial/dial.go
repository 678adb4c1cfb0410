// Package dial keeps one connection to a control plane that requests share, and replaces it.
//
// It owns when a connection is dialed and when a replaced one is closed. Its callers decide which
// address it dials and which errors replace it.
package dial

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/trust"
)

// ErrClosed is the error of requests after Close.
var ErrClosed = fmt.Errorf("%w: the client is closed", controlplane.ErrUnavailable)

// Conn is a connection, which embeds Uses.
type Conn interface {
	comparable
	// Ready reports whether a request can use the connection. It must not block.
	Ready() bool
	// Close closes the connection. Requests that use it fail.
	Close()
	// Counter returns the embedded Uses.
	Counter() *Uses
}

// Uses counts the requests that use a connection.
type Uses struct {
	count    int           // guarded by the mutex of Shared
	replaced chan struct{} // closed once the connection is replaced
}

// Replaced is closed when another connection replaces this one, or the client is closed.
func (u *Uses) Replaced() <-chan struct{} { return u.replaced }

// Counter returns u.
func (u *Uses) Counter() *Uses { return u }

// Shared is a connection that is replaced on demand.
type Shared[C Conn] struct {
	dial func() (C, error)
	late func(cause error) error

	mu      sync.Mutex // guards the fields below
	conn    C          // zero if the next request dials
	attempt *attempt   // nil if none runs
	closed  bool
}

// attempt is one attempt to dial. It reads files, and a filesystem that does not answer can
// block it forever. Requests wait for it only as long as their contexts allow.
type attempt struct {
	done  chan struct{} // closed when the attempt has ended
	err   error         // why there is no connection; valid once done is closed
	stale bool          // Reconnect was called since it began; guarded by the mutex of Shared
}

// New returns a Shared without a connection. The first request calls dial, in a goroutine of
// its own. late is the error of a request whose context ends while it waits for dial.
func New[C Conn](dial func() (C, error), late func(cause error) error) *Shared[C] {
	return &Shared[C]{dial: dial, late: late}
}

// Acquire returns the current connection, or dials one. The caller must call Release.
func (s *Shared[C]) Acquire(ctx context.Context) (conn C, err error) {
	for {
		if ctx.Err() != nil {
			return conn, context.Cause(ctx)
		}
		conn, running, err := s.current()
		if running == nil {
			return conn, err
		}
		select {
		case <-running.done:
			if running.err != nil {
				return conn, running.err
			}
		case <-ctx.Done():
			return conn, s.late(controlplane.NoAnswer(ctx))
		}
	}
}

// current returns the current connection, with one more use, or else the attempt to dial one.
func (s *Shared[C]) current() (conn C, running *attempt, err error) {
	var none C
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return none, nil, ErrClosed
	}
	if s.conn != none && !s.conn.Ready() {
		s.replace()
	}
	if s.conn != none {
		s.conn.Counter().count++
		return s.conn, nil, nil
	}
	if s.attempt == nil {
		s.attempt = &attempt{done: make(chan struct{})}
		go s.run(s.attempt)
	}
	return none, s.attempt, nil
}

// run dials until the result is current.
func (s *Shared[C]) run(a *attempt) {
	// The connection serves all requests. In a profile it must not have the labels of the request that
	// dials it.
	pprof.SetGoroutineLabels(context.Background())
	for {
		conn, err := s.dial()
		if s.finish(a, conn, err) {
			close(a.done)
			return
		}
	}
}

// finish records the result of an attempt. It returns false if the attempt has to run again.
func (s *Shared[C]) finish(a *attempt, conn C, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && (a.stale || s.closed) {
		conn.Close()
	}
	switch {
	case s.closed:
		err = ErrClosed
	case a.stale:
		a.stale = false
		return false
	case err == nil:
		conn.Counter().replaced = make(chan struct{})
		s.conn = conn
	}
	s.attempt, a.err = nil, err
	return true
}

// Release ends a use of a connection. The last one closes a connection that was replaced.
func (s *Shared[C]) Release(conn C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conn.Counter().count--; conn.Counter().count == 0 && s.conn != conn {
		conn.Close()
	}
}

// Drop makes the next request dial, if conn is the current connection. Other requests that use the
// connection continue.
func (s *Shared[C]) Drop(conn C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn {
		s.replace()
	}
}

// Reconnect makes the next request dial. Requests that use the connection continue.
func (s *Shared[C]) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempt != nil {
		s.attempt.stale = true
	}
	s.replace()
}

// Close drops the connection for good. Requests that use the connection continue.
func (s *Shared[C]) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.replace()
}

// Current returns the current connection without counting a use; the zero value if there is none.
func (s *Shared[C]) Current() C {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// replace removes the current connection, if there is one. The caller holds the mutex.
func (s *Shared[C]) replace() {
	conn := s.conn
	var none C
	if conn == none {
		return
	}
	s.conn = none
	close(conn.Counter().replaced)
	if conn.Counter().count == 0 {
		conn.Close()
	}
}

// FileHint returns a hint for a file of credentials that cannot be read.
func FileHint(err error) string { return fileHint(err, os.Geteuid() == 0) }

// fileHint is FileHint for a process of root, such as the agent, or of another user, such as the
// server.
func fileHint(err error, root bool) string {
	untrusted, ok := errors.AsType[*trust.Error](err)
	switch {
	case ok:
		return untrusted.Hint
	case errors.Is(err, fs.ErrNotExist):
		return "create the file, or correct its name; hostler reloads it"
	case errors.Is(err, fs.ErrPermission) && root:
		return "make it readable for root"
	case errors.Is(err, fs.ErrPermission):
		name, path := "NAME", "PATH"
		if file, ok := errors.AsType[*fs.PathError](err); ok {
			name, path = filepath.Base(file.Path), file.Path
		}
		return fmt.Sprintf("the server's own user cannot read it: add LoadCredential=%[1]s:%[2]s to a drop-in of hostler-server.service, and set the key to /run/credentials/hostler-server.service/%[1]s", name, path)
	}
	return "correct the file; hostler reloads it"
}
