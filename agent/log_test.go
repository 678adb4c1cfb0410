package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// logbook is a log that a test reads.
type logbook struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logbook) count(text string) int { return strings.Count(l.String(), text) }

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }
