// Command prepare gets everything that tests build or fetch: tools, Debian roots, programs of
// Kubernetes and etcd, and compiled packages. `make test` runs it before the first test, so that no
// test competes with a compiler. It prints a line for each part: how long it took, and how much time
// of processors. What exists takes none.
//
// Its arguments are the flags with which tests are compiled.
//
// It owns the list of parts, and no recipe: each part is the function that TestMain of the packages
// that use it calls, so that a single `go test` needs no preparation.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, parts(os.Args[1:])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// part is something that tests need.
type part struct {
	name string
	get  func(ctx context.Context) error
}

// run gets one part after the other: each uses all processors or the network.
func run(ctx context.Context, out io.Writer, parts []part) error {
	begin, usedBefore := time.Now(), used()
	for i, p := range parts {
		fmt.Fprintf(out, "prepare %2d/%d: %-46s", i+1, len(parts), p.name)
		began, before := time.Now(), used()
		if err := p.get(ctx); err != nil {
			fmt.Fprintln(out, "failed")
			return fmt.Errorf("prepare %s: %w", p.name, err)
		}
		fmt.Fprintln(out, spent(began, before))
	}
	fmt.Fprintln(out, "prepared in", spent(begin, usedBefore))
	return nil
}

func spent(began time.Time, before time.Duration) string {
	return fmt.Sprintf("%v, CPU %v", time.Since(began).Round(time.Second), (used() - before).Round(time.Second))
}

// used returns the time of processors that child processes have used.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
