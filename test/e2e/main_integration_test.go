//go:build integration

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/lab/unit"
)

const (
	// version is the version of the binary under test.
	version = "0.0.0-e2e"
	// binary is the binary under test. It is removed with the lab.
	binary = lab.Dir + "/bin/hostler"
	// examplePlugin is the plugin of docs/howto/control-plane-plugin.md, built in the same way.
	examplePlugin = lab.Dir + "/bin/plugin-https"
	// spawner starts the agent as the process of a unit, built in the same way.
	spawner = lab.Dir + "/bin/spawn"
	// builtVariable passes the paths of the programs into the lab. They are built outside, where there
	// is a network.
	builtVariable = "HOSTLER_E2E_BUILT"
	// temporary is the folder for temporary files.
	temporary = lab.Dir + "/tmp"
)

// containerd serves all tests except those that need their own image filesystem, and units runs all
// agents. They are set once, before the first test.
var (
	containerd *lab.Containerd
	units      *unit.Manager
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx := context.Background()
	if os.Getenv(builtVariable) == "" {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		err := kube.Prepare(ctx, log, kube.Etcd, kube.APIServer, kube.ControllerManager, kube.Kubectl, kube.Kubelet, kube.Etcdctl, kube.Etcdutl)
		if err := errors.Join(err, build()); err != nil {
			return 0, err
		}
	}
	l, err := lab.Enter(ctx, lab.Options{
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitContainers, lab.KitLogin, lab.KitPrometheus}},
	})
	if err != nil {
		return 0, errors.Join(err, os.RemoveAll(filepath.Dir(os.Getenv(builtVariable))))
	}
	if err := lab.Take(filepath.Dir(os.Getenv(builtVariable)), binary, examplePlugin, spawner); err != nil {
		return 0, err
	}
	// The agent has its own /tmp. TMPDIR of tests must be visible to it.
	if err := errors.Join(os.Mkdir(temporary, 0o777), os.Chmod(temporary, 0o777|os.ModeSticky), os.Setenv("TMPDIR", temporary)); err != nil {
		return 0, err
	}
	if units, err = unit.Start(ctx, l, unit.Options{File: "../../packaging/hostler.service", Spawner: spawner}); err != nil {
		return 0, err
	}
	if containerd, err = l.StartContainerd(ctx, lab.ContainerdOptions{}); err != nil {
		return 0, err
	}
	// Tests mostly wait.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		return 0, err
	}
	return m.Run(), errors.Join(containerd.Close(ctx), units.Close())
}

// build builds the static binary, as `make build` does, the plugin and the spawner.
func build() error {
	dir, err := os.MkdirTemp("", "hostler-e2e-")
	if err != nil {
		return err
	}
	built := filepath.Join(dir, filepath.Base(binary))
	err = lab.Build(context.Background(), "hostler.io/hostler", version, built)
	for _, other := range []struct{ pkg, file string }{
		{"docs/examples/plugin-https", examplePlugin}, {"test/lab/unit/spawn", spawner},
	} {
		if err == nil {
			err = lab.Build(context.Background(), "hostler.io/hostler/"+other.pkg, "", filepath.Join(dir, filepath.Base(other.file)))
		}
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return os.Setenv(builtVariable, built)
}
