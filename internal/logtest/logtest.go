// Package logtest has a log that tests read. It refuses to judge what is in it.
package logtest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Book keeps what is written to it. Its zero value is empty; it is safe for
// concurrent use.
type Book struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write adds to the book, and never fails.
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is all that was written.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count is how often a text was written.
func (b *Book) Count(text string) int { return strings.Count(b.String(), text) }

// Logger writes to the book as the agent does to the journal.
func (b *Book) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
