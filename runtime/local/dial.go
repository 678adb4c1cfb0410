package local

import (
	"context"
	"fmt"
	"net"

	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/runtime"
)

// Dial connects to the socket of a runtime. Because hostler trusts what a runtime reports, it fails
// with runtime.ErrUnavailable unless root or hostler's own user serves the socket.
func Dial(ctx context.Context, path string) (*net.UnixConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := trust.ServedByRoot(conn, path); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	return conn.(*net.UnixConn), nil
}
