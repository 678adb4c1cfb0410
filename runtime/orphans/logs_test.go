package orphans_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pipe creates the FIFO of a container's output like containerd's CRI and its shim: the shim keeps
// both ends open.
func (h *host) pipe(id string) *os.File {
	h.t.Helper()
	folder := filepath.Join(h.state, "io.containerd.grpc.v1.cri", "containers", id, "io", "1234567")
	must(h.t, os.MkdirAll(folder, 0o700))
	path := filepath.Join(folder, id+"-stdout")
	must(h.t, unix.Mkfifo(path, 0o700))
	shim, err := os.OpenFile(path, os.O_RDWR, 0)
	must(h.t, err)
	h.t.Cleanup(func() { _ = shim.Close() })
	return shim
}

// write writes more than a pipe holds, and fails if nobody reads within the time.
func write(pipe *os.File, within time.Duration) error {
	if err := pipe.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := pipe.Write(make([]byte, 1<<20))
	return err
}

func TestOutputIsDiscardedWhileTheRuntimeIsGone(t *testing.T) {
	h := newHost(t)
	h.pod("web", "image-")
	pipe := h.pipe("web-c")
	h.stopK3s()
	h.seen()
	if err := write(pipe, 5*time.Minute); err != nil {
		t.Errorf("a container's write ended with %v, want somebody to read it", err)
	}
	// The runtime returns, and reads the output itself.
	h.in.Release()
	if err := write(pipe, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a container's write ended with %v after Release, want it to wait for the runtime", err)
	}
}

// No list is requested between start and end of the stop.
func TestOutputIsDiscardedDuringAStop(t *testing.T) {
	h := newHost(t)
	h.pod("web", "image-SIGWINCH") // it ignores SIGWINCH
	pipe := h.pipe("web-c")
	h.stopK3s()
	stopped := make(chan error, 1)
	go func() { stopped <- h.in.StopContainer(t.Context(), h.pods[0].Containers[0], 100*time.Millisecond) }()
	if err := write(pipe, 5*time.Minute); err != nil {
		t.Errorf("a container's write ended with %v, want somebody to read it", err)
	}
	must(t, <-stopped)
}

// A file in the place of a pipe must not be opened. A runtime that only fails still reads the
// output itself.
func TestOnlyPipesOfGoneRuntimesAreRead(t *testing.T) {
	h := newHost(t)
	h.pod("web", "image-")
	pipe := h.pipe("web-c")
	must(t, os.WriteFile(filepath.Join(h.state, "io.containerd.grpc.v1.cri/containers/web-c/io/1234567/web-c-stderr"), nil, 0o600))
	pods, err := h.in.Pods(t.Context())
	must(t, err)
	h.in.Adopt(t.Context(), pods, nil, nil)
	h.slow = true
	h.seen()
	if err := write(pipe, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a container's write ended with %v while its runtime is slow, want it to wait for that", err)
	}
}
