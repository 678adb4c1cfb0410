//go:build integration

package lab_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
)

func TestMain(m *testing.M) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// In the lab there is no network, so it must be in the cache. Main reports a missing root below.
	if os.Geteuid() == 0 {
		if _, err := debian.PrepareRuntimes(context.Background(), log); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	lab.Main(m, lab.Options{
		Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers, lab.KitDocker, lab.KitLogin}},
		Log:   log,
	})
}
