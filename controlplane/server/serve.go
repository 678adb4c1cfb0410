package server

import (
	"context"
	"io"
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

// health answers whether all loops make progress. An unreachable store does not count, because a
// restart would not help.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if err := s.loops.Healthy(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // fails if the client has disconnected
}

// serveMetrics serves metrics and health at the configured address.
func (s *Server) serveMetrics(ctx context.Context, heartbeat func(error)) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics())
	mux.HandleFunc("GET /healthz", s.health)
	c := s.o.Config.Metrics
	return listen.ServePlain(ctx, mux, c.Listen, c.Insecure, s.o.Log.With("component", "metrics"), func() { heartbeat(nil) })
}
