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
	"hostler.io/hostler/test/lab/unit"
	"hostler.io/hostler/test/machine/debian"
)

const (
	// builtVariable passes the path of the binary under test into the lab. It is built outside, where
	// there is a network.
	builtVariable = "HOSTLER_E2E_BUILT"
	// binary is that binary; spawner starts the agent as the process of a unit, inside the lab.
	binary  = lab.Dir + "/bin/hostler"
	spawner = lab.Dir + "/bin/spawn"
	// temporary is the folder for temporary files.
	temporary = lab.Dir + "/tmp"
)

// units runs all agents. It is set once, before the first of them.
var units *unit.Manager

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
	if err := units.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

// prepare returns inside the lab, with the binary built and a manager for it.
func prepare(o lab.Options) error {
	if os.Getenv(builtVariable) == "" {
		dir, err := os.MkdirTemp("", "hostler-e2e-")
		if err != nil {
			return err
		}
		built := filepath.Join(dir, "hostler")
		if os.Geteuid() == 0 { // without root, entering the lab reports it
			_, err = debian.PrepareDockerd(context.Background(), o.Log)
		}
		if err == nil {
			err = lab.Build(context.Background(), "hostler.io/hostler", "0.0.0-e2e", built)
		}
		if err == nil {
			err = lab.Build(context.Background(), "hostler.io/hostler/test/lab/unit/spawn", "", filepath.Join(dir, filepath.Base(spawner)))
		}
		if err != nil {
			_ = os.RemoveAll(dir)
			return err
		}
		if err := os.Setenv(builtVariable, built); err != nil {
			return err
		}
	}
	l, err := lab.Enter(context.Background(), o)
	if err != nil {
		return errors.Join(err, os.RemoveAll(filepath.Dir(os.Getenv(builtVariable))))
	}
	// The agent has its own /tmp. TMPDIR of tests must be visible to it.
	err = errors.Join(
		lab.Take(filepath.Dir(os.Getenv(builtVariable)), binary, spawner),
		os.Mkdir(temporary, 0o777), os.Chmod(temporary, 0o777|os.ModeSticky), os.Setenv("TMPDIR", temporary),
	)
	if err != nil {
		return err
	}
	units, err = unit.Start(context.Background(), l, unit.Options{File: "../../../packaging/hostler.service", Spawner: spawner})
	return err
}
