//go:build integration

package podlogs_test

import (
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
)

// TestMain gives these tests their own lab. A collector for one runtime would treat the logs of
// another runtime's pods as orphaned.
func TestMain(m *testing.M) {
	lab.Main(m, lab.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}
