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

var update = flag.Bool("update", false, "write what became of the suite's cases anew")

func TestMain(m *testing.M) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// In the lab there is no network, and it is in the cache. Who is not root is told so below.
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
