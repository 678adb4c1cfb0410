// Command upstream runs Kubernetes' own e2e suite for taints, unmodified, on clusters where
// `hostler server` has the place of two controllers of kube-controller-manager, and on clusters
// where kube-controller-manager has them. So a fault of hostler differs from a limit of the bed.
//
// It owns the beds and the summary. The suite and the programs are built from modules of
// Kubernetes, see test/kube; kubelets are kubemark's, which need no images. Everything runs in a
// lab, of which only logs stay, in dist/upstream.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

const (
	// buildLimit is how long programs may take to be built, where none is in the cache.
	buildLimit = time.Hour
	// runLimit is how long all beds may take, which run side by side: mostly the specs' own waiting.
	runLimit = 20 * time.Minute
	// specs is the file of Kubernetes whose specs run.
	specs = "test/e2e/node/taints.go"
	// logs is where logs go.
	logs = "dist/upstream"
)

func main() {
	os.Exit(upstream())
}

// upstream is main with an exit code: 0 if all specs passed in all beds, 1 if not, 2 for wrong use,
// 130 where it was interrupted.
func upstream() int {
	controllers := flag.String("controllers", "node-lifecycle, eviction", "the controllers of hostler server, to see specs fail that need the others")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: upstream [-controllers LIST] PATH-OF-HOSTLER\nhint: as root, `make test-upstream` builds both and runs this")
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
	ctx, cancel := context.WithTimeoutCause(interrupted, runLimit, fmt.Errorf("the suite took longer than %s", runLimit))
	defer cancel()
	columns := runAll(ctx, []bed{
		{
			name: "hostler server", binary: binary, hostlers: *controllers, evicts: serverUser,
			flags: []string{"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"},
		},
		{name: "kube-controller-manager", evicts: controllerUser},
	})
	fmt.Print(summary(columns))
	switch {
	case interrupted.Err() != nil:
		fmt.Println("Interrupted; everything that was started is ended.")
		return 130
	case !passed(columns):
		return 1
	}
	return 0
}

// enter builds what is missing, and then returns a second time, in the lab.
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
	// What programs leave behind ends with the lab.
	temporary := filepath.Join(lab.Dir, "tmp")
	return errors.Join(os.Mkdir(temporary, 0o755), os.Setenv("TMPDIR", temporary), os.RemoveAll(logs))
}

// runAll runs the suite in all beds side by side.
func runAll(ctx context.Context, beds []bed) []column {
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
