// Command demo shows hostler's main job on real daemons and checks every step: a Node that reports
// itself, a full image filesystem, a reboot, and the record of it afterwards. With -fleet it shows
// the server's job: a fleet in etcd loses a host and gets it back.
//
// It owns the pods and images of the demo, the order of events, and the checked claims. It runs in
// test/lab, so it changes nothing on the host and leaves nothing behind. It does not look inside
// the agent: its facts come from the hostler command, containerd, logind and the kernel.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
)

const (
	// runLimit limits the time of the demo without downloads.
	runLimit = 170 * time.Second
	// closeLimit limits how long the daemons may take to end afterwards.
	closeLimit = 10 * time.Second
)

func main() {
	os.Exit(demo(os.Args[1:]))
}

// demo is main with an exit code: 0 if all claims hold, 1 if not, 2 for wrong usage, 130 if it was
// interrupted.
func demo(args []string) int {
	second := len(args) == 2 && args[0] == "-fleet"
	if second {
		args = args[1:]
	}
	if len(args) != 1 && len(args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: demo PATH-OF-HOSTLER [PICTURE-OF-THE-SHUTDOWN ITS-RECORD]\n   or: demo -fleet PATH-OF-HOSTLER\nhint: as root, `make demo` or `make demo-fleet` builds both and runs this")
		return 2
	}
	binary, err := filepath.Abs(args[0])
	if err == nil {
		_, err = os.Stat(binary)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: find hostler: %v\nhint: build it with `make build`\n", err)
		return 2
	}
	if os.Geteuid() != 0 {
		fmt.Fprintf(os.Stderr, "demo: it makes namespaces and mounts of its own, for which it must be root\nhint: sudo %s %s\n", os.Args[0], args[0])
		return 1
	}
	if second {
		if err := etcd.Prepare(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			return 1
		}
	}
	// Enter runs the program a second time in the lab. Outside the lab it only waits; inside it
	// returns.
	l, err := lab.Enter(context.Background(), lab.Options{
		Hostname: "demo-host",
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	interrupted, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	defer stop()
	if second {
		return runScenario(interrupted, &fleet{lab: l, binary: binary})
	}
	h := &host{lab: l, binary: binary}
	if len(args) == 3 {
		h.picture, h.record = args[1], args[2]
	}
	return runScenario(interrupted, h)
}

// scenario is the environment of a demo.
type scenario interface {
	execute(ctx context.Context, out *console) error
	close(ctx context.Context) error
	log() string // its last lines
}

// runScenario runs the chapters until one fails, and cleans up.
func runScenario(interrupted context.Context, s scenario) int {
	ctx, cancel := context.WithTimeoutCause(interrupted, runLimit, fmt.Errorf("the demo took longer than %s", runLimit))
	defer cancel()
	out := newConsole(os.Stdout)

	err := s.execute(ctx, out)
	if errors.Is(err, context.DeadlineExceeded) && interrupted.Err() == nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	log := s.log() // removed by close
	closing, closed := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer closed()
	if closeErr := s.close(closing); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("clean up: %w", closeErr))
	}

	switch {
	case interrupted.Err() != nil:
		out.printf("Interrupted; everything that was started is ended.")
		return 130
	case err != nil:
		out.failed(err, log)
		return 1
	}
	out.done()
	return 0
}

// log implements scenario.
func (h *host) log() string {
	if h.agent == nil {
		return ""
	}
	return h.agent.Log(25)
}

// execute implements scenario.
func (h *host) execute(ctx context.Context, out *console) error {
	h.out = out
	return out.runChapters(ctx, []chapter{
		{"A host with pods", h.prepare},
		{"The Node tells how it is", h.showNode},
		{"Images and dead containers are collected", h.showCollection},
		{"A reboot waits for the pods", h.showShutdown},
		{"After the reboot", h.showNextBoot},
	})
}
