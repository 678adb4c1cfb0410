package orphans

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// logs discards the output of containers whose runtime is gone. Without a reader, a container
// blocks in a write when its pipe is full, and then does not handle signals.
type logs struct {
	mu   sync.Mutex
	open map[string][]*os.File // guarded by mu; by container ID, even if it has no pipes
}

// discard starts to read the pipes of a container, once. It does not block.
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
			continue // the shim has removed it
		}
		l.open[id] = append(l.open[id], pipe)
		go func() {
			_, _ = io.Copy(io.Discard, pipe) // until the shim closes it, or end does
			_ = pipe.Close()
		}()
	}
}

// end stops all reading, because the runtime returns and reads again.
func (l *logs) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pipes := range l.open {
		for _, pipe := range pipes {
			_ = pipe.Close() // may be closed already
		}
	}
	l.open = nil
}

// pipes returns the FIFOs through which containerd's shim passes on a container's output. They are
// in a folder of CRI with a random name, next to the shims' folders, which contain the container's
// bundle. See NewFIFOSetInDir in containerd's pkg/cio, and NewContainerIO in its CRI.
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

// openPipe opens a FIFO for reading, without waiting for a writer. It refuses other files.
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
