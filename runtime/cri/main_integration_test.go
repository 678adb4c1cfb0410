//go:build integration

package cri_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
)

var update = flag.Bool("update", false, "rewrite the results of the suite")

func TestMain(m *testing.M) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// The lab has no network, so modules must be in the cache. Without root, the test fails below
	// with an explanation.
	if os.Geteuid() == 0 {
		if _, err := debian.PrepareRuntimes(context.Background(), log); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	lab.Main(m, lab.Options{
		Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers, lab.KitFilesystems}},
		Log:   log,
	})
}
