//go:build integration

package orphans_test

import (
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
)

func TestMain(m *testing.M) {
	lab.Main(m, lab.Options{
		Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers}},
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}
