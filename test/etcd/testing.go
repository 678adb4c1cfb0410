package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// Prepare builds what clusters need, and other programs, outside the lab.
func Prepare(ctx context.Context, log *slog.Logger, programs ...kube.Program) error {
	return kube.Prepare(ctx, log, append([]kube.Program{kube.Etcd, kube.Etcdctl, kube.Etcdutl}, programs...)...)
}

// Main runs the tests of m in a lab where clusters can be started, and exits with their
// code. It is all that a TestMain has to call. Programs are those that tests use beside etcd.
func Main(m *testing.M, programs ...kube.Program) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := Prepare(context.Background(), log, programs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lab.Main(m, lab.Options{Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitExt4}}, Log: log})
}

// For is Start for the time of a test, which shows the members' logs if it fails.
func For(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	c, err := Start(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			for _, m := range c.Members {
				tb.Logf("log of %s:\n%s", m.Name, m.Log(30))
			}
		}
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}
