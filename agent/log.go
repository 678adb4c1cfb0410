package agent

import (
	"io"
	"log/slog"

	"hostler.io/hostler/agent/config"
)

// NewLog returns a log as configured, and its level, which a reload may change.
// Times are left out where journald adds its own.
func NewLog(w io.Writer, cfg config.Log, journald bool) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	setLevel(level, cfg.Level)
	options := &slog.HandlerOptions{Level: level}
	if journald {
		options.ReplaceAttr = func(groups []string, attr slog.Attr) slog.Attr {
			if len(groups) == 0 && attr.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return attr
		}
	}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

// setLevel sets a level that the configuration has checked.
func setLevel(level *slog.LevelVar, name string) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err == nil {
		level.Set(l)
	}
}
