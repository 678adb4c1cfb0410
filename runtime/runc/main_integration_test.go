//go:build integration

package runc_test

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

// TestMain runs the tests with the cgroups that the host has, and where these are not
// those of most hosts, version 2 alone, with these as well.
func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// In the lab there is no network, and it is in the cache. Who is not root is told so below.
	if os.Geteuid() == 0 {
		if _, err := debian.PrepareRuntimes(context.Background(), log); err != nil {
			return 1, err
		}
	}
	_, err := lab.Enter(context.Background(), lab.Options{
		Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers, lab.KitCrun}},
		Log:   log,
	})
	if err != nil {
		return 1, err
	}
	code := m.Run()
	others, err := lab.UnifyCgroups()
	if err != nil || !others {
		return code, err
	}
	fmt.Println("once more, with version 2 of cgroups alone")
	return max(code, m.Run()), nil
}
