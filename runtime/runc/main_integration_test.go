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

var update = flag.Bool("update", false, "rewrite the results of the suite")

// TestMain runs the tests with the host's cgroups. If these are not version 2 alone, as on most
// hosts, it runs them with version 2 alone, too.
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
	// The lab has no network, so modules must be in the cache. Without root, the test fails below
	// with an explanation.
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
