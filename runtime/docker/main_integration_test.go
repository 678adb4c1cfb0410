//go:build integration

package docker_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
)

var update = flag.Bool("update", false, "write what became of the suite's cases anew")

func TestMain(m *testing.M) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// In the lab there is no network, and it is in the cache. Who is not root is told so below.
	if _, err := trixieDockerd(log); err != nil && os.Geteuid() == 0 {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lab.Main(m, lab.Options{
		Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers, lab.KitDocker}},
		Log:   log,
	})
}

// trixieDockerd is Debian 13's, a later one than the host's or Debian 12's.
func trixieDockerd(log *slog.Logger) (string, error) {
	tree, err := debian.PrepareTree(context.Background(), debian.Trixie, []string{"docker.io"}, log)
	return filepath.Join(tree, "usr/sbin/dockerd"), err
}
