package kube

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"hostler.io/hostler/test/lab"
)

// Main runs the tests of m in a lab for control planes, and exits with their code. A TestMain needs
// to call nothing else. programs are additional programs of the tests, besides etcd, kube-apiserver
// and kubectl.
func Main(m *testing.M, programs ...Program) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := Prepare(context.Background(), log, append([]Program{Etcd, APIServer, Kubectl}, programs...)...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lab.Main(m, lab.Options{Fetch: lab.FetchOptions{Kits: []lab.Kit{}}, Log: log})
}

// For is Start for the time of a test. If the test fails, it logs the daemons' output.
func For(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	c, err := Start(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			for program, d := range c.daemons() {
				tb.Logf("log of %s:\n%s", program, d.Log(30))
			}
		}
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}
