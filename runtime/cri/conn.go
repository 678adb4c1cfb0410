package cri

import (
	"context"
	"net"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime/local"
)

func (r *Runtime) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := local.Dial(ctx, r.path)
	if err != nil {
		return nil, err
	}
	r.dials.Add(1)
	r.last.Store(conn)
	return conn, nil
}

// closedByRuntime returns the current connection if the runtime has closed its end, else nil. gRPC
// may notice that a moment later. A call on such a connection does not reach the runtime.
func (r *Runtime) closedByRuntime() *net.UnixConn {
	conn := r.last.Load()
	if conn == nil {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	var closed bool
	if err := raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, err := unix.Poll(poll, 0)
		closed = err == nil && poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	}); err != nil || !closed {
		return nil // if Control fails, gRPC has closed the connection and will open a new one
	}
	return conn
}
