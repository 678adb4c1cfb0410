package server

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/server/metrics"
	"hostler.io/hostler/internal/listen"
)

// statusTime is how long metrics show the same status. To compute it, the caches of the controllers are locked, and
// anybody who can connect can ask.
const statusTime = time.Second

// shared computes a status at most once in statusTime.
type shared struct {
	mu     sync.Mutex // guards the fields below, and lets callers wait for the one that computes
	status answer.Status
	at     time.Time
}

// get returns a status that is at most statusTime old.
func (s *shared) get(compute func(now time.Time) answer.Status) answer.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.at) >= statusTime {
		s.status, s.at = compute(now), now
	}
	return s.status
}

// metrics serves /metrics.
func (s *Server) metrics() http.Handler {
	return metrics.Handler(func() answer.Status { return s.scraped.get(s.status) })
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
