package server

import (
	"context"
	"net/http"
	"time"

	"hostler.io/hostler/controlplane/server/metrics"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
)

// metrics serves /metrics.
func (s *Server) metrics() http.Handler {
	return metrics.Handler(func() metrics.State {
		now, report := time.Now(), s.nodes.Report()
		state := metrics.State{Status: s.status(now), Conflicts: report.Writes.Conflict, Failed: report.Writes.Failed}
		if !report.OldestDue.IsZero() {
			state.OldestDueSeconds = now.Sub(report.OldestDue).Seconds()
		}
		return state
	})
}

// serveMetrics serves them at the configured address.
func (s *Server) serveMetrics(ctx context.Context, l *loop.Loop) error {
	return listen.ServeMetrics(ctx, s.metrics(), s.o.Config.Metrics.Listen, s.o.Log.With("component", l.Name()), func() { l.Heartbeat(nil) })
}
