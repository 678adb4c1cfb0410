package report

import (
	"log/slog"
)

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }
