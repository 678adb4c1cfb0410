//go:build integration

package meter_test

import (
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
)

func TestMain(m *testing.M) {
	lab.Main(m, lab.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}
