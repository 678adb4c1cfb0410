package engine_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/test/flood"
)

// mostAllocated bounds a client's allocations for a response that is too large. It is several times
// the limit of 16 MiB, because the read buffer grows.
const mostAllocated = 192 << 20

// flooding returns a connection to a daemon that gives this answer to all but the first ping.
func flooding(t *testing.T, answer http.HandlerFunc) *engine.Conn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/_ping") {
			w.Header().Set("Api-Version", "1.44")
			return
		}
		answer(w, r)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // until it is closed
	}()
	conn := engine.New(path, func(string, time.Duration, error) {})
	t.Cleanup(func() {
		_ = conn.Close()
		_ = server.Close()
		<-ended
	})
	return conn
}

// flooded calls a daemon with that answer, and returns the error.
func flooded(t *testing.T, begin, filling string, call func(context.Context, *engine.Conn) error) error {
	t.Helper()
	conn := flooding(t, func(w http.ResponseWriter, _ *http.Request) { flood.Write(w, begin, filling) })
	var err error
	allocated := flood.Allocated(func() { err = call(t.Context(), conn) })
	if t.Logf("allocated %d MiB: %v", allocated>>20, err); allocated > mostAllocated {
		t.Errorf("the client allocated %d MiB, want at most %d", allocated>>20, mostAllocated>>20)
	}
	return err
}

func TestAnswersThatAreTooLargeAreNotTaken(t *testing.T) {
	list := func(ctx context.Context, c *engine.Conn) error {
		return c.Call(ctx, "list", "list containers", 5*time.Minute, func(ctx context.Context, cl *client.Client) error {
			_, err := cl.ContainerList(ctx, client.ContainerListOptions{})
			return err
		})
	}
	events := func(ctx context.Context, c *engine.Conn) error {
		open := func(ctx context.Context, cl *client.Client) (client.EventsResult, error) {
			return cl.Events(ctx, client.EventsListOptions{}), nil
		}
		return engine.Stream(ctx, c, "watch events", 5*time.Minute, open, func(ctx context.Context, stream client.EventsResult) error {
			for {
				select {
				case <-stream.Messages:
				case err := <-stream.Err:
					return err
				}
			}
		})
	}
	const event = `{"Type":"container","Action":"start","Actor":{"ID":"c","Attributes":{"a":"} \" {`
	for name, tt := range map[string]struct {
		call           func(context.Context, *engine.Conn) error
		begin, filling string
	}{
		"a list":   {list, `[{"Id":"c"}`, `,{"Id":"c"}`},
		"no event": {events, "", "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			err := flooded(t, tt.begin, tt.filling, tt.call)
			if !errors.Is(err, runtime.ErrTooLarge) {
				t.Errorf("the call = %v, want %v", err, runtime.ErrTooLarge)
			}
		})
	}
	for name, tt := range map[string]struct{ begin, filling string }{ // incomplete, or nothing that can be decoded
		"an event of a long label": {event, "x"},
		"brackets":                 {"", "["},
	} {
		t.Run(name, func(t *testing.T) {
			if err := flooded(t, tt.begin, tt.filling, events); err == nil {
				t.Error("the call has no error")
			}
		})
	}
	t.Run("many events", func(t *testing.T) {
		conn := flooding(t, func(w http.ResponseWriter, _ *http.Request) {
			one := event + strings.Repeat("x", 8000) + `"}}}` + "\n"
			_, _ = w.Write([]byte(strings.Repeat(one, 2*engine.MaxAnswerBytes/len(one)))) // the client may have closed the connection
		})
		if err := events(t.Context(), conn); errors.Is(err, runtime.ErrTooLarge) {
			t.Errorf("the call = %v, want events to be bounded one by one", err)
		}
	})
}
