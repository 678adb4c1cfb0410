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

// ServeMetrics serves GET /metrics at a loopback address, by plain HTTP, until ctx ends; up is called once
// it listens. A port that is taken is an error, after which it may be called again, and so is
// another address: localhost is what the host's resolver makes of it.
func ServeMetrics(ctx context.Context, h http.Handler, address string, log *slog.Logger, up func()) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return ServePlain(ctx, mux, address, false, log, up)
}

// ServePlain is ServeMetrics of any handler. If beyond is set, it serves other addresses, too, and so
// everybody who can connect.
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
