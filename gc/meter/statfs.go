// Package meter measures filesystems for garbage collection: how full they are, what fills them,
// and whether deferred deletions have finished.
//
// It owns the system calls. A call that hangs, for example on a lost device or file server, does
// not block other calls.
package meter

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// Statfs measures the filesystems of a host. The zero value is ready to use.
type Statfs struct {
	// calls shares a call that hangs, so that it costs one goroutine, and not one for each run.
	calls singleflight.Group
}

// Usage calls statfs(2) on the folder. That is correct even if another mount hides the mount point.
func (s *Statfs) Usage(ctx context.Context, fs runtime.Filesystem) (gc.Usage, error) {
	path := folder(fs)
	answer, err := s.bounded(ctx, "statfs", path, func() (any, error) {
		var st unix.Statfs_t
		err := retryInterrupted(func() error { return unix.Statfs(path, &st) })
		return st, err
	})
	if err != nil {
		return gc.Usage{Filesystem: fs}, err
	}
	st := answer.(unix.Statfs_t)
	// Blocks are counted in units of Frsize. On some FUSE and network filesystems it differs from
	// Bsize. df(1) does the same.
	unit := uint64(st.Frsize)
	if unit == 0 {
		unit = uint64(st.Bsize)
	}
	return gc.Usage{
		Filesystem:     fs,
		CapacityBytes:  st.Blocks * unit,
		AvailableBytes: st.Bavail * unit,
		Inodes:         st.Files,
		InodesFree:     st.Ffree,
	}, nil
}

// Sync calls syncfs(2).
func (s *Statfs) Sync(ctx context.Context, fs runtime.Filesystem) error {
	path := folder(fs)
	_, err := s.bounded(ctx, "syncfs", path, func() (any, error) {
		dir, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		return nil, unix.Syncfs(int(dir.Fd()))
	})
	return err
}

func (s *Statfs) bounded(ctx context.Context, operation, path string, call func() (any, error)) (any, error) {
	select {
	case r := <-s.calls.DoChan(operation+path, call):
		if r.Err != nil {
			return nil, fmt.Errorf("%s %s: %w", operation, path, r.Err)
		}
		return r.Val, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s %s: no answer in time: %w", operation, path, ctx.Err())
	}
}

// folder returns the path to measure: the runtime's folder, or the mount point if it has none.
func folder(fs runtime.Filesystem) string {
	if fs.Path == "" {
		return fs.Mountpoint
	}
	return fs.Path
}

func retryInterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
