package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/cli"
	"hostler.io/hostler/controlplane/plugin/plugintest"
)

// TestMain allows scripts to run the command as a separate process.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"plugin": plugin, "hostler": func() {
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		os.Exit(cli.Run(cli.Process{
			Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
			Signals: signals, Now: time.Now, Version: "1.2.3", WatchInterval: watchInterval,
		}))
	}})
}

// plugin is a control plane in memory that serves the socket at this path until it is killed. With
// the argument "full" it stores nothing.
func plugin() {
	server := &plugintest.Server{Fault: func(_ context.Context, method string) error {
		if method == "Put" && slices.Contains(os.Args, "full") {
			return errors.New("disk is full")
		}
		return nil
	}}
	if _, err := server.Listen(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// Scripts have a healthy agent at $HEALTHY, one in a fleet at $FLEET, one that fails at $FAILING,
// and none at $HOSTLER_SOCKET.
func TestScripts(t *testing.T) {
	healthy := serve(t, fullBackend())
	fleet := serve(t, fleets()["much-is-wrong"])
	failing := serve(t, &backend{err: &api.Error{Message: "list pods: the runtime is asleep", Hint: "wake it"}})
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each command takes one second longer to exit
			e.Setenv("HEALTHY", healthy)
			e.Setenv("FAILING", failing)
			e.Setenv("FLEET", fleet)
			e.Setenv("HOSTLER_SOCKET", e.WorkDir+"/none.sock")
			e.Setenv("HOSTLER_CONFIG", e.WorkDir+"/hostler.yaml")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code},
	})
}

// code runs hostler and checks its exit code: code 2 gc run --bogus.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N ARG...")
	}
	err := ts.Exec("hostler", args[1:]...)
	got := "0"
	if err != nil {
		got = err.Error() // "exit status 2"
		got = got[len(got)-1:]
	}
	if got != args[0] {
		ts.Fatalf("hostler %v ended with %v, want exit code %s", args[1:], err, args[0])
	}
}
