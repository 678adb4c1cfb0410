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

// Prepare builds the programs that clusters need, and other programs, outside the lab.
func Prepare(ctx context.Context, log *slog.Logger, programs ...kube.Program) error {
	return kube.Prepare(ctx, log, append([]kube.Program{kube.Etcd, kube.Etcdctl, kube.Etcdutl}, programs...)...)
}

// Main runs the tests of m in a lab for clusters, and exits with their code. A TestMain needs to
// call nothing else. programs are additional programs of the tests.
func Main(m *testing.M, programs ...kube.Program) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := Prepare(context.Background(), log, programs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lab.Main(m, lab.Options{Fetch: lab.FetchOptions{Kits: []lab.Kit{lab.KitExt4}}, Log: log})
}

// For is Start for the time of a test. If the test fails, it logs the members' output.
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
