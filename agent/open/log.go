package open

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/internal/outbox"
	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/systemd/journald"
)

const (
	// maxLogQueue is the maximum number of queued log records while the output blocks.
	maxLogQueue = 1024
	// logEndTimeout bounds the wait for the output at the end of the process.
	logEndTimeout = time.Second
)

// Log returns the configured log, and its level, which a reload may change. If JOURNAL_STREAM says
// that w is the journal, a text log writes attributes as journal fields. It omits times, because
// the journal adds its own.
//
// Log calls do not wait for the output: records are queued. Records that do not fit are counted,
// and the count is logged later. end writes the queued records, within a second.
func Log(w io.Writer, cfg config.Log, stream string) (log *slog.Logger, level *slog.LevelVar, end func()) {
	level = new(slog.LevelVar)
	SetLevel(level, cfg.Level)
	inJournal := journald.Connected(w, stream)
	handler := func(receive func(journald.Record)) slog.Handler {
		options := &slog.HandlerOptions{Level: level}
		if inJournal {
			options.ReplaceAttr = journald.WithoutTime
		}
		switch {
		case cfg.Format == "json":
			return slog.NewJSONHandler(lines(receive), options)
		case inJournal:
			return journald.New(receive, level)
		}
		return slog.NewTextHandler(lines(receive), options)
	}
	sender := &journald.Sender{Socket: journald.Socket, Stream: w}
	direct := slog.New(handler(sender.Send))
	box := outbox.New(maxLogQueue, func(r journald.Record, lost uint64) {
		if lost > 0 {
			direct.Error("lost log records: the output did not accept them in time", "records", lost)
		}
		sender.Send(r)
	})
	return slog.New(sanitize.Handler{Handler: handler(box.Put)}), level, func() {
		ctx, cancel := context.WithTimeout(context.Background(), logEndTimeout)
		defer cancel()
		_ = box.Close(ctx) // the log itself failed, so the error cannot be logged
	}
}

// lines converts each written line to a journal record.
type lines func(journald.Record)

func (l lines) Write(p []byte) (int, error) {
	l(journald.Record{Line: bytes.Clone(p)})
	return len(p), nil
}

// SetLevel sets a level that the configuration has validated.
func SetLevel(level *slog.LevelVar, name string) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err == nil {
		level.Set(l)
	}
}
