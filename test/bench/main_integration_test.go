//go:build integration

package bench_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"hostler.io/hostler/test/lab"
)

const (
	// binary is the result of `make build`. The lab shows the sources at the same path.
	binary = "../../hostler"
	// scratch is the folder of the agent's state: on a real disk, because the lab's folders are in
	// memory. `make clean` removes it, too.
	scratch = "../../dist/bench"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.bench"); f == nil || f.Value.String() == "" {
		os.Exit(m.Run()) // no selected benchmark needs a lab
	}
	if _, err := os.Stat(binary); err != nil {
		fmt.Fprintln(os.Stderr, "the binary to measure is missing: run `make bench`:", err)
		os.Exit(1)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := prepareCluster(log); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	kits := []lab.Kit{lab.KitContainers, lab.KitLogin}
	if selected("BenchmarkRuntimes") || selected("BenchmarkFinding") {
		kits = append(kits, lab.KitDocker, lab.KitPodman, lab.KitCrun)
	}
	if _, err := lab.Enter(context.Background(), lab.Options{Fetch: lab.FetchOptions{Kits: kits}, Log: log}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(scratch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// selected reports whether a benchmark was selected. The testing package reports an invalid
// pattern.
func selected(benchmark string) bool {
	pattern, _, _ := strings.Cut(flag.Lookup("test.bench").Value.String(), "/")
	yes, err := regexp.MatchString(pattern, benchmark)
	return err == nil && yes
}

// BenchmarkFigures measures all figures and prints their table, even if it fails.
func BenchmarkFigures(b *testing.B) {
	var t table
	defer t.print(os.Stdout)
	before := load(b)
	measurePlan(b, &t)
	bed := newBed(b)
	defer func() { fmt.Println("\non " + machine(b, bed.containerd) + ", before " + before) }()
	bed.measureStart(&t)
	bed.measureIdle(&t)
	bed.measureShutdown(&t)
	bed.measurePhase(&t)
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
