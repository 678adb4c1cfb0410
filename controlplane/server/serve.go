package server

import (
	"context"
	"net/http"
	"time"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/server/metrics"
	"hostler.io/hostler/internal/listen"
)

// metrics serves /metrics.
func (s *Server) metrics() http.Handler {
	return metrics.Handler(func() answer.Status { return s.status(time.Now()) })
}

// serveMetrics serves them at the configured address.
func (s *Server) serveMetrics(ctx context.Context, heartbeat func(error)) error {
	return listen.ServeMetrics(ctx, s.metrics(), s.o.Config.Metrics.Listen, s.o.Log.With("component", "metrics"), func() { heartbeat(nil) })
}
