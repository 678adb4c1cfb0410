package server

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"time"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/systemd/notify"
)

// SilenceFile is silenceFile.
type SilenceFile = silenceFile

// SilencesOf is silencesOf.
func SilencesOf(passed []*os.File, manager *notify.Notifier, supervised bool, file string) (Silences, error) {
	return silencesOf(passed, manager, supervised, file)
}

// SaveWith saves a Silence when the clocks were later by some time.
func (f silenceFile) SaveWith(s lifecycle.Silence, monotonicLater, wallLater time.Duration) error {
	clock, err := monotonic()
	if err != nil {
		return err
	}
	text, err := json.Marshal(savedSilence{clock + monotonicLater, time.Now().Add(wallLater), s})
	if err != nil {
		return err
	}
	return os.WriteFile(string(f), text, 0o600)
}

// Routes returns the routes of the API.
func (s *Server) Routes() http.Handler { return s.routes() }

// List lists the objects of a kind for the caller of a request.
func (o *reader) List(ctx context.Context, kind string) error {
	_, err := o.list(ctx, kind)
	return err
}

// NewReader returns a reader of the objects in a store.
var NewReader = newReader

// InTurn returns a handler that answers in turn.
func InTurn(next func(*http.Request) (any, error)) http.Handler {
	return inTurn(listen.NewTurns(), next)
}

// Shared is shared.
type Shared = shared

// Get is get.
func (s *shared) Get(compute func(now time.Time) answer.Status) answer.Status { return s.get(compute) }
