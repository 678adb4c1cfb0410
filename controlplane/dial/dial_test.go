package dial_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/dial"
)

type conn struct {
	dial.Uses
	lost, closed atomic.Bool
}

func (c *conn) Ready() bool { return !c.lost.Load() }

func (c *conn) Close() {
	if c.closed.Swap(true) {
		panic("the connection is closed twice")
	}
}

var errLate = errors.New("late")

// server returns connections.
type server struct {
	*dial.Shared[*conn]
	dials   atomic.Int32
	blocked chan struct{} // a dial does not end until it is closed
	err     error
}

func newServer() *server {
	s := &server{blocked: make(chan struct{})}
	s.Shared = dial.New(func() (*conn, error) {
		s.dials.Add(1)
		<-s.blocked
		if s.err != nil {
			return nil, s.err
		}
		return &conn{}, nil
	}, func(cause error) error { return errors.Join(errLate, cause) })
	return s
}

func (s *server) acquire(t *testing.T) *conn {
	t.Helper()
	c, err := s.Acquire(t.Context())
	if err != nil {
		t.Fatalf("Acquire() = %v, want no error", err)
	}
	return c
}

func TestRequestsShareOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var conns sync.Map
		var requests sync.WaitGroup
		for range 10 {
			requests.Go(func() {
				if c, err := s.Acquire(t.Context()); err == nil {
					conns.Store(c, true)
				}
			})
		}
		synctest.Wait()
		close(s.blocked)
		requests.Wait()
		n := 0
		conns.Range(func(any, any) bool { n++; return true })
		if n != 1 || s.dials.Load() != 1 {
			t.Errorf("ten requests use %d connections of %d dials, want 1 of 1", n, s.dials.Load())
		}
	})
}

func TestARequestWaitsForADialNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx); !errors.Is(err, errLate) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire() = %v, want %v for the end of its context", err, errLate)
		}
		close(s.blocked)
		synctest.Wait()
		s.acquire(t)
		if n := s.dials.Load(); n != 1 {
			t.Errorf("dials = %d, want the next request to use the first one's", n)
		}
	})
}

func TestAFailedDialIsTriedAgainByTheNextRequest(t *testing.T) {
	s := newServer()
	close(s.blocked)
	s.err = errors.New("connection refused")
	if _, err := s.Acquire(t.Context()); !errors.Is(err, s.err) {
		t.Errorf("Acquire() = %v, want %v", err, s.err)
	}
	s.err = nil
	s.acquire(t)
}

func TestAReplacedConnectionIsClosedAfterItsLastUse(t *testing.T) {
	for name, replace := range map[string]func(*server, *conn){
		"dropped":         func(s *server, c *conn) { s.Drop(c) },
		"dropped twice":   func(s *server, c *conn) { s.Drop(c); s.Drop(c) },
		"reconnected":     func(s *server, _ *conn) { s.Reconnect() },
		"lost":            func(s *server, c *conn) { c.lost.Store(true) },
		"closed for good": func(s *server, _ *conn) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			close(s.blocked)
			first := s.acquire(t)
			if s.acquire(t) != first || s.Current() != first {
				t.Fatal("the second request uses another connection")
			}
			replace(s, first)
			second, err := s.Acquire(t.Context())
			if closed := name == "closed for good"; closed != errors.Is(err, dial.ErrClosed) || closed != errors.Is(err, controlplane.ErrUnavailable) || !closed && (err != nil || second == first) {
				t.Errorf("Acquire() = %v, with the first connection = %t", err, second == first)
			}
			<-first.Replaced()
			s.Release(first)
			if first.closed.Load() {
				t.Error("the first connection is closed while a request uses it")
			}
			s.Release(first)
			if !first.closed.Load() {
				t.Error("the first connection is open after its last use")
			}
			s.Drop(first)
			if s.Current() != second {
				t.Error("to drop the first connection replaces the second one")
			}
		})
	}
}

func TestADialThatIsOutdatedIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		go func() { _, _ = s.Acquire(t.Context()) }()
		synctest.Wait()
		s.Reconnect()
		close(s.blocked)
		synctest.Wait()
		if n := s.dials.Load(); n != 2 || s.Current() == nil {
			t.Errorf("dials = %d, current connection = %v, want the second one's", n, s.Current())
		}
	})
}

func TestADialThatOutlivesTheClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		failed := make(chan error, 1)
		go func() { _, err := s.Acquire(t.Context()); failed <- err }()
		synctest.Wait()
		s.Close()
		close(s.blocked)
		if err := <-failed; !errors.Is(err, dial.ErrClosed) || s.Current() != nil {
			t.Errorf("Acquire() = %v, current connection = %v, want %v and none", err, s.Current(), dial.ErrClosed)
		}
	})
}
