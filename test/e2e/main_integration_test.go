//go:build integration

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

const (
	// version is what the binary under test says of itself.
	version = "0.0.0-e2e"
	// binary is the binary under test, which ends with the lab.
	binary = lab.Dir + "/bin/hostler"
	// examplePlugin is the plugin of docs/plugin.md, likewise.
	examplePlugin = lab.Dir + "/bin/plugin-https"
	// builtVariable tells the inside of the lab where the outside, which alone
	// has a network, has built it.
	builtVariable = "HOSTLER_E2E_BUILT"
)

// containerd serves all tests but those that want an image filesystem of their
// own. It is set once, before the first of them.
var containerd *lab.Containerd

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
	if err := takeBinaries(filepath.Dir(os.Getenv(builtVariable))); err != nil {
		return 0, err
	}
	if containerd, err = l.StartContainerd(ctx, lab.ContainerdOptions{}); err != nil {
		return 0, err
	}
	// Tests wait far more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		return 0, err
	}
	return m.Run(), containerd.Close(ctx)
}

// build makes the static binary, as `make build` does, and the plugin.
func build() error {
	dir, err := os.MkdirTemp("", "hostler-e2e-")
	if err != nil {
		return err
	}
	built := filepath.Join(dir, filepath.Base(binary))
	err = lab.Build(context.Background(), "hostler.io/hostler", version, built)
	if err == nil {
		err = lab.Build(context.Background(), "hostler.io/hostler/docs/examples/plugin-https", "", filepath.Join(dir, filepath.Base(examplePlugin)))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return os.Setenv(builtVariable, built)
}

// takeBinaries moves what was built into the lab, so that nothing of it stays behind.
func takeBinaries(folder string) error {
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return err
	}
	for _, to := range []string{binary, examplePlugin} {
		if err := take(filepath.Join(folder, filepath.Base(to)), to); err != nil {
			return err
		}
	}
	return os.RemoveAll(folder)
}

func take(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
