//go:build integration

package cri_test

import (
	"flag"
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
)

var update = flag.Bool("update", false, "write what became of the suite's cases anew")

func TestMain(m *testing.M) {
	lab.Main(m, lab.Options{
		Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers, lab.KitFilesystems}},
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}
