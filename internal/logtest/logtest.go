// Package logtest captures logs for tests. It does not judge them.
package logtest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Book stores everything that is written to it. Its zero value is ready to use. It is safe for
// concurrent use.
type Book struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write appends p, and never fails.
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns everything that was written.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns how often a text was written.
func (b *Book) Count(text string) int { return strings.Count(b.String(), text) }

// Logger returns a logger that writes to the book in the agent's format.
func (b *Book) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
