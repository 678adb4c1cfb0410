package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// ServeMetrics serves GET /metrics at a loopback address, by plain HTTP, until ctx ends. It calls
// up once it listens. If the port is in use, or the address is not loopback, it returns an error,
// and may be called again. The host's resolver decides what localhost is.
func ServeMetrics(ctx context.Context, h http.Handler, address string, log *slog.Logger, up func()) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return ServePlain(ctx, mux, address, false, log, up)
}

// ServePlain is ServeMetrics for any handler. If beyond is set, it also serves addresses beyond
// loopback, to everybody who can connect.
func ServePlain(ctx context.Context, h http.Handler, address string, beyond bool, log *slog.Logger, up func()) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w; set metrics.listen to another port, or to \"\"", err)
	}
	if at, ok := l.Addr().(*net.TCPAddr); !beyond && (!ok || !at.IP.IsLoopback()) {
		_ = l.Close()
		return fmt.Errorf("serve metrics: %s is %s, which is beyond loopback; set metrics.listen to 127.0.0.1 with a port", address, l.Addr())
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	up()
	if err := server.Serve(PlainTCP(l, log)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return ctx.Err()
}
