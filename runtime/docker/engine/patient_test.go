package engine_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
)

// daemon returns a connection to a daemon that answers pings by itself.
func daemon(t *testing.T, serve http.HandlerFunc) *engine.Conn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "daemon.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.44") })
	mux.HandleFunc("/say", serve)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	c := engine.New(path, func(string, time.Duration, error) {})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// soon is when a caller gives up. On a busy machine, it may not have sent its request by then.
const soon = 200 * time.Millisecond

// giveUp calls a busy daemon, and gives up, until n requests have arrived.
func giveUp(t *testing.T, c *engine.Conn, asked *atomic.Int32, n int32) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); asked.Load() < n; {
		if err := ask(t, c, http.MethodGet, soon); !errors.Is(err, runtime.ErrUnavailable) && asked.Load() <= n {
			t.Fatalf("Ask() of a busy daemon = %v, want that it does not answer", err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the daemon was asked %d times, want %d times", asked.Load(), n)
		}
	}
}

func ask(t *testing.T, c *engine.Conn, verb string, timeout time.Duration) error {
	t.Helper()
	var text string
	err := c.Ask(t.Context(), "Say", "ask the daemon", timeout, engine.Request{Verb: verb, Path: "/say"}, &text)
	if err == nil && text != "well" {
		t.Errorf("the daemon said %q, want what it says", text)
	}
	return err
}

// A daemon continues with requests that callers have given up.
func TestAPendingRequestIsNotRepeated(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	busy := make(chan struct{})
	c := daemon(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); r.Method == http.MethodGet {
			<-busy
		}
		_, _ = w.Write([]byte(`"well"`))
	})
	giveUp(t, c, &asked, 3)
	for range 2 {
		if err := ask(t, c, http.MethodGet, soon); !errors.Is(err, runtime.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Ask() of a busy daemon = %v, want that it does not answer", err)
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("a daemon that did not answer was asked %d times, want 3 times", n)
	}
	if err := ask(t, c, http.MethodPost, time.Minute); err != nil {
		t.Errorf("Ask() for a deed = %v, want it done meanwhile", err)
	}
	later := make(chan error, 1)
	go func() { later <- ask(t, c, http.MethodGet, time.Minute) }()
	close(busy)
	if err := <-later; err != nil {
		t.Errorf("Ask() of one that is not busy any more = %v, want its answer", err)
	}
	if n := asked.Load(); n != 5 {
		t.Errorf("it was asked %d times, want once more each", n)
	}
}

// A caller that gave up must not keep others from an answer for which they have time.
func TestAPendingRequestDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	c := daemon(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) <= 2 {
			<-r.Context().Done() // never answers
		}
		_, _ = w.Write([]byte(`"well"`))
	})
	giveUp(t, c, &asked, 2)
	if err := ask(t, c, http.MethodGet, time.Minute); err != nil {
		t.Errorf("Ask() while answers are owed = %v, want its answer", err)
	}
}

// A request may start a daemon.
func TestACancelledCallerSendsNoRequest(t *testing.T) {
	var asked atomic.Int32
	c := daemon(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`"well"`))
	})
	if err := ask(t, c, http.MethodGet, time.Minute); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.Ask(ctx, "Say", "ask the daemon", time.Minute, engine.Request{Verb: http.MethodGet, Path: "/say"}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Ask() that is cancelled = %v, want %v", err, context.Canceled)
	}
	if err := ask(t, c, http.MethodGet, time.Minute); err != nil {
		t.Error(err)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the daemon was asked %d times, want twice", n)
	}
}

// The requests that were pending ended with it.
func TestARestartedDaemonIsQueriedAtOnce(t *testing.T) {
	var asked atomic.Int32
	c := daemon(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 {
			_, _ = w.Write([]byte(`"well"`))
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		time.AfterFunc(50*time.Millisecond, func() { _ = conn.Close() })
	})
	giveUp(t, c, &asked, 1)
	if err := ask(t, c, http.MethodGet, time.Minute); err != nil {
		t.Errorf("Ask() of the next daemon = %v, want its answer", err)
	}
}

// Nobody waits for a closed connection.
func TestAClosedConnectionHasNothingPending(t *testing.T) {
	var asked atomic.Int32
	left := make(chan struct{}, 1)
	c := daemon(t, func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
		select {
		case left <- struct{}{}:
		default:
		}
	})
	giveUp(t, c, &asked, 1)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-left
	if err := ask(t, c, http.MethodGet, time.Minute); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Ask() over a closed connection = %v, want it refused", err)
	}
}
