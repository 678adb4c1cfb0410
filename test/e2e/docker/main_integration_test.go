//go:build integration

package docker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
)

// builtVariable tells the inside of the lab where the outside, which alone has a network,
// has built the binary under test.
const builtVariable = "HOSTLER_E2E_BUILT"

func TestMain(m *testing.M) {
	o := lab.Options{
		Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers, lab.KitDocker, lab.KitPodman, lab.KitLogin}},
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if err := prepare(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(filepath.Dir(os.Getenv(builtVariable))) // the lab is over
	os.Exit(code)
}

// prepare returns inside the lab, with the binary built.
func prepare(o lab.Options) error {
	if os.Getenv(builtVariable) == "" {
		dir, err := os.MkdirTemp("", "hostler-e2e-")
		if err != nil {
			return err
		}
		built := filepath.Join(dir, "hostler")
		if os.Geteuid() == 0 { // the lab refuses others
			_, err = debian.PrepareDockerd(context.Background(), o.Log)
		}
		if err := errors.Join(err, lab.Build(context.Background(), "hostler.io/hostler", "0.0.0-e2e", built)); err != nil {
			_ = os.RemoveAll(dir)
			return err
		}
		if err := os.Setenv(builtVariable, built); err != nil {
			return err
		}
	}
	_, err := lab.Enter(context.Background(), o)
	return err
}
