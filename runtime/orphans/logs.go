package orphans

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// logs reads away what containers log whose runtime is gone, which nobody else does: a
// container is held up in a write once its pipe is full, and heeds no signal there.
type logs struct {
	mu   sync.Mutex
	open map[string][]*os.File // guarded by mu: by ID of the container, also where there is none
}

// discard begins to read the pipes of a container, once. It does not wait.
func (l *logs) discard(id string, bundle func() string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, started := l.open[id]; started {
		return
	}
	if l.open == nil {
		l.open = map[string][]*os.File{}
	}
	l.open[id] = nil
	for _, path := range pipes(id, bundle()) {
		pipe, err := openPipe(path)
		if err != nil {
			continue // its shim has tidied up
		}
		l.open[id] = append(l.open[id], pipe)
		go func() {
			_, _ = io.Copy(io.Discard, pipe) // until its shim or the reading ends
			_ = pipe.Close()
		}()
	}
}

// end has nothing read any more: the runtime does, which returns.
func (l *logs) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pipes := range l.open {
		for _, pipe := range pipes {
			_ = pipe.Close() // or was, at its end
		}
	}
	l.open = nil
}

// pipes are the FIFOs by which containerd's shim hands on what a container writes. CRI keeps
// them in a folder with a random name, beside those of the shims, in one of which is the
// container's bundle (NewFIFOSetInDir in containerd's pkg/cio, NewContainerIO in its CRI).
func pipes(id, bundle string) (paths []string) {
	state, _, found := strings.Cut(bundle, "/io.containerd.runtime.v")
	if !found {
		return nil
	}
	folder := filepath.Join(state, "io.containerd.grpc.v1.cri", "containers", id, "io")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		for _, stream := range []string{"stdout", "stderr"} {
			paths = append(paths, filepath.Join(folder, entry.Name(), id+"-"+stream))
		}
	}
	return paths
}

// openPipe opens a FIFO and nothing else for reading, without waiting for a writer.
func openPipe(path string) (*os.File, error) {
	pipe, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := pipe.Stat()
	if err == nil && info.Mode()&os.ModeNamedPipe == 0 {
		err = os.ErrInvalid
	}
	if err != nil {
		_ = pipe.Close()
		return nil, err
	}
	return pipe, nil
}
