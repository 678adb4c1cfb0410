package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/shutdown"
)

const (
	// stopTimeout bounds how long loops may take to end.
	stopTimeout = 10 * time.Second
	// flushTimeout bounds how long sending the last Events may take.
	flushTimeout = 2 * time.Second
)

// Run runs the agent until a signal ends it: SIGTERM and SIGINT stop it, SIGHUP reloads the
// configuration. For the effect of SIGTERM on pods, see stop. It returns ErrNamed if it must be
// restarted. It can be called once.
func (a *Agent) Run(signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	guarding, stopGuarding := context.WithCancel(context.WithoutCancel(ctx))
	defer stopGuarding()

	a.owners.Refresh(ctx)
	if len(a.settings.Policies().Phases) == 0 { // files of an earlier agent are no longer needed
		a.restoreDelay()
	}
	var loops, guard sync.WaitGroup
	guard.Go(func() { a.shutdown.guardLoop.Supervise(guarding, a.log) })
	for _, l := range a.loops {
		if l != a.shutdown.guardLoop {
			loops.Go(func() { l.Supervise(ctx, a.log) })
		}
	}
	server := api.NewServer(api.Routes(a.serving.backend, a.serving.metrics, a.log.With("component", "api")))
	failed := make(chan error, 1)
	loops.Go(func() {
		if err := server.Serve(listen.Users(a.serving.listener, a.log.With("component", "api"))); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})
	loops.Go(func() {
		a.loops.Feed(ctx, a.host.notifier.WatchdogInterval(), func() { a.notify(a.host.notifier.Watchdog()) }, a.log)
	})
	named := make(chan string, 1)
	if a.settings.Node().NameProblem != "" {
		a.log.Warn("no valid host name for the Node", "reason", a.settings.Node().NameProblem)
		loops.Go(func() {
			if name, err := a.awaitName(ctx); err == nil {
				named <- name
			}
		})
	}
	if !a.naming.nameInvalid() { // otherwise the agent reports it after the restart that sets the name
		loops.Go(func() { a.reports.bootEvents.ReportLastBoot(ctx) })
	}
	loops.Go(func() {
		if a.awaitFirstChecks(ctx) {
			a.notify(a.host.notifier.Ready())
		}
	})
	a.log.Info("agent started", "version", a.version, "node", a.node(), "socket", a.config().API.Socket, "state", a.config().State.Directory)
	a.logLastShutdown()

	goingDown, err := a.await(ctx, signals, failed, named)

	cancel()
	closing, closed := context.WithTimeout(context.Background(), flushTimeout)
	_ = server.Shutdown(closing) // Close below ends the remaining requests
	closed()
	_ = server.Close()
	a.reports.bootEvents.Keep() // events of the last requests; written when the state is closed
	err = errors.Join(err, a.within("loops", stopTimeout, func() error { loops.Wait(); return nil }))
	stopGuarding()
	err = errors.Join(err, a.within("shutdown guard", stopTimeout, func() error { guard.Wait(); return nil }))
	if !goingDown {
		a.restoreDelay() // nothing raises the delay again after this
	}
	if err := a.within("state and connections", stopTimeout, a.close); err != nil {
		a.log.Warn("cleanup incomplete", "error", err) // for example a full disk; not a failure of the stop
	}
	a.log.Info("agent stopped")
	return err
}

// firstChecks bounds how long the service manager waits for the first checks of an agent.
const firstChecks = 5 * time.Second

// awaitFirstChecks waits until the guard has its lock, or cannot get it, and the runtimes were
// queried. So commands after `systemctl restart hostler` report the host, and not the start. It
// returns false if the agent ends before.
func (a *Agent) awaitFirstChecks(ctx context.Context) bool {
	bound, cancel := context.WithTimeout(ctx, firstChecks)
	defer cancel()
	for bound.Err() == nil {
		guard := a.shutdown.guard.Status()
		undecided := guard.State == shutdown.Disarmed && (guard.Trouble == nil || errors.Is(guard.Trouble, shutdown.ErrStarting))
		_, queried := a.host.runtimes.Current()
		if queried && (!undecided || len(a.settings.Policies().Phases) == 0) {
			break
		}
		_ = bounded.Sleep(bound, 50*time.Millisecond)
	}
	return ctx.Err() == nil
}

// logLastShutdown logs the result of the shutdown before this start.
func (a *Agent) logLastShutdown() {
	last := a.shutdown.guard.Status().Last
	if last == nil {
		return
	}
	level := slog.LevelInfo
	if !last.Graceful {
		level = slog.LevelWarn
	}
	a.log.Log(context.Background(), level, "last shutdown", "graceful", last.Graceful, "kind", last.Kind, "trigger", last.Trigger, "pods", len(last.Pods), "killed", last.Killed(), "error", last.Error)
}

// await handles signals until a signal or a failure ends the agent, and returns whether the whole
// system is shutting down.
func (a *Agent) await(ctx context.Context, signals <-chan os.Signal, failed <-chan error, named <-chan string) (goingDown bool, err error) {
	for {
		select {
		case name := <-named:
			a.shutdown.ending.Store(true)
			if goingDown = a.stop(ctx, "the host is called "+name+" now", signals); !goingDown {
				err = ErrNamed
			}
			return goingDown, err
		case err := <-failed:
			return a.stop(ctx, "cannot serve the API", signals), err
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				_, _ = a.serving.reloader.Reload(ctx) // Reload logs the error
				continue
			}
			a.shutdown.ending.Store(true)
			return a.stop(ctx, sig.String(), signals), nil
		}
	}
}

// within runs a final step, but waits no longer than limit: a hanging disk must not delay a shutdown.
// The error names the step.
func (a *Agent) within(what string, limit time.Duration, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
	}
	return fmt.Errorf("%s did not stop within %s and were abandoned; stuck: %s", what, limit, cmp.Or(strings.Join(a.loops.Stuck(), ", "), "no loop"))
}

// notify logs err, the result of a notification to the service manager.
func (a *Agent) notify(err error) {
	if err != nil {
		a.log.Warn("service manager", "error", err)
	}
}
