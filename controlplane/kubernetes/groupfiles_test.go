package kubernetes_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Each caller has to return: the one that renews the Lease, and callers that only need the server's
// address.
func TestAFileThatAKubeconfigNamesBlocksNobodyEither(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { respond(w, nodeText) })
	ca := authority(t, server)
	text, err := os.ReadFile(ca)
	if err := errors.Join(err, os.Remove(ca), unix.Mkfifo(ca, 0o600)); err != nil {
		t.Fatal(err)
	}
	client := open(t, write(t, "kubeconfig", config(server.URL, "certificate-authority: "+ca, "token: secret")))
	asked := make(chan error, 3)
	for range cap(asked) {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := client.Node(ctx, "n")
			_ = client.Endpoint()
			asked <- err
		}()
	}
	for range cap(asked) {
		select {
		case err := <-asked:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Node() with an authority that hangs = %v, want it to end in time", err)
			}
		case <-time.After(patience):
			t.Fatal("Node() or Endpoint() with an authority that hangs does not return")
		}
	}
	pipe, err := os.OpenFile(ca, os.O_WRONLY, 0) // waits until it is being read
	if err := errors.Join(err, os.Remove(ca), os.WriteFile(ca, text, 0o600), release(pipe, text)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := client.Node(ctx, "n"); err != nil {
		t.Errorf("Node() once the authority could be read = %v, want no error", err)
	}
}

// release writes to a FIFO that is being read. A reader that has stopped waiting closes it at once.
func release(pipe *os.File, text []byte) error {
	_, err := pipe.Write(text)
	if errors.Is(err, unix.EPIPE) {
		err = nil
	}
	return errors.Join(err, pipe.Close())
}

// Reading a FIFO without a writer blocks, like reading a file on a mount whose server is gone.
func TestAKubeconfigThatHangsBlocksNobody(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { respond(w, nodeText) })
	text := config(server.URL, "certificate-authority: "+authority(t, server), "token: secret")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	client := open(t, path)
	if _, err := client.Node(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	client.Reconnect()
	for range 3 {
		var err error
		for limit := 50 * time.Millisecond; limit < patience; limit *= 2 { // a busy machine may begin to read too late
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			_, err = client.Node(ctx, "n")
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), path) {
				break
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), path) {
			t.Errorf("Node() with a kubeconfig that hangs = %v, want its name in time", err)
		}
	}
	if got := client.Endpoint(); got != server.URL {
		t.Errorf("Endpoint() = %s, want %s as it was read last", got, server.URL)
	}

	// The blocked read began before the file was replaced, so its result is used.
	client.Reconnect()
	pipe, err := os.OpenFile(path, os.O_WRONLY, 0) // waits until it is being read
	if err := errors.Join(err, os.Remove(path), os.WriteFile(path, []byte(text), 0o600), release(pipe, []byte("torn"))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := client.Node(ctx, "n"); err != nil {
		t.Errorf("Node() with a kubeconfig that can be read again = %v, want no error", err)
	}
}
