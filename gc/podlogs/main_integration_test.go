//go:build integration

package podlogs_test

import (
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
)

// TestMain gives these tests a lab of their own: whoever collects logs for one
// runtime takes those of another one's pods for rubbish.
func TestMain(m *testing.M) {
	lab.Main(m, lab.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}
