package open

import (
	"io"
	"log/slog"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/systemd/journald"
)

// Log returns a log as configured, and its level, which a reload may change. Where w is
// the journal, which stream tells, a text log has its attributes in fields there; times are
// left out, for the journal adds its own.
func Log(w io.Writer, cfg config.Log, stream string) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	SetLevel(level, cfg.Level)
	inJournal := journald.Connected(w, stream)
	if inJournal && cfg.Format != "json" {
		return slog.New(journald.New(journald.Socket, w, level)), level
	}
	options := &slog.HandlerOptions{Level: level}
	if inJournal {
		options.ReplaceAttr = journald.WithoutTime
	}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

// SetLevel sets a level that the configuration has checked.
func SetLevel(level *slog.LevelVar, name string) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err == nil {
		level.Set(l)
	}
}
