// Command upstream runs Kubernetes' own e2e suites for taints and for garbage collection,
// unmodified. It runs them on clusters where `hostler server` replaces controllers of
// kube-controller-manager, and on clusters with kube-controller-manager's own. The comparison
// distinguishes faults of hostler from limits of the bed.
//
// It owns the beds and the summary. The suite and the programs are built from modules of
// Kubernetes, see test/kube. The kubelets are kubemark's, which need no images. Everything runs in
// a lab, and only logs stay, in dist/upstream.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

const (
	// buildLimit limits the time to build all programs, if none is in the cache.
	buildLimit = time.Hour
	// runLimit limits the time of one suite in its two beds, which run in parallel. Most of the time,
	// the specs wait.
	runLimit = 25 * time.Minute
	// logs is the folder for logs.
	logs = "dist/upstream"
)

func main() {
	os.Exit(upstream())
}

// upstream is main with an exit code: 0 if all specs passed in all beds, 1 if not, 2 for wrong
// usage, 130 if it was interrupted.
func upstream() int {
	only := flag.String("only", "", "the suite to run: "+strings.Join(slices.Sorted(maps.Keys(suites)), " or ")+"; both if empty")
	controllers := flag.String("controllers", "", "the controllers of hostler server, to see specs fail that need the others")
	flag.Parse()
	if _, known := suites[*only]; flag.NArg() != 1 || *only != "" && !known {
		fmt.Fprintln(os.Stderr, "usage: upstream [-only SUITE] [-controllers LIST] PATH-OF-HOSTLER\nhint: as root, `make test-upstream` builds both and runs this")
		return 2
	}
	binary, err := filepath.Abs(flag.Arg(0))
	if err == nil {
		_, err = os.Stat(binary)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "upstream: find hostler: %v\nhint: build it with `make build`\n", err)
		return 2
	}
	interrupted, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	defer stop()
	if err := enter(interrupted); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		return 1
	}
	code := 0
	for _, name := range slices.Sorted(maps.Keys(suites)) {
		if *only != "" && *only != name {
			continue
		}
		s := suites[name]
		s.hostlers = cmp.Or(*controllers, s.hostlers)
		columns := runAll(interrupted, s.beds(binary))
		fmt.Print(summary(columns))
		switch {
		case interrupted.Err() != nil:
			fmt.Println("Interrupted; everything that was started is ended.")
			return 130
		case !passed(columns):
			code = 1
		}
	}
	return code
}

// enter builds missing programs, and then returns a second time, in the lab.
func enter(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	building, cancel := context.WithTimeoutCause(ctx, buildLimit, fmt.Errorf("the programs took longer than %s to build", buildLimit))
	defer cancel()
	err := kube.Prepare(building, log, kube.Etcd, kube.APIServer, kube.ControllerManager, kube.Kubectl, kube.Scheduler, kube.Kubemark, kube.Suite)
	if err != nil {
		return errors.Join(err, context.Cause(building))
	}
	if _, err := lab.Enter(ctx, lab.Options{Log: log, Fetch: lab.FetchOptions{Kits: []lab.Kit{}}}); err != nil {
		return err
	}
	// Temporary files of programs are removed with the lab.
	temporary := filepath.Join(lab.Dir, "tmp")
	return errors.Join(os.Mkdir(temporary, 0o755), os.Setenv("TMPDIR", temporary), os.RemoveAll(logs))
}

// runAll runs the suite in all beds in parallel.
func runAll(ctx context.Context, beds []bed) []column {
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("the suite took longer than %s", runLimit))
	defer cancel()
	columns := make([]column, len(beds))
	var all sync.WaitGroup
	for i, b := range beds {
		all.Go(func() {
			began := time.Now()
			columns[i] = b.run(ctx)
			columns[i].took = time.Since(began)
			if err := columns[i].err; err != nil && ctx.Err() != nil {
				columns[i].err = errors.Join(context.Cause(ctx), err)
			}
		})
	}
	all.Wait()
	return columns
}
