package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/systemd"
)

const (
	// askTimeout bounds short requests that must finish before the agent ends.
	askTimeout = 3 * time.Second
	// verdictTimeout bounds the request to systemd whether the whole system is stopping. A busy
	// systemd may need seconds to answer. Without its answer, pods would be killed. A stop of only
	// the service loses nothing by waiting.
	verdictTimeout = 20 * time.Second
	// extension is how much more time the agent requests from systemd at a time.
	extension = 15 * time.Second
	// teardown is added to the phases and their margin: the last sandboxes need it.
	teardown = 20 * time.Second
)

// stop ends the agent after a signal. A stop, restart or upgrade of the service does not touch
// containers. Pods are drained only if systemd itself is stopping, as in a shutdown without logind
// notification.
func (a *Agent) stop(ctx context.Context, why string, signals <-chan os.Signal) (goingDown bool) {
	a.notify(a.host.notifier.Stopping())
	stopping, again, err := a.systemStops(ctx, signals)
	if err != nil && !errors.Is(err, systemd.ErrNotSystemd) {
		// If a drain is running, the system is shutting down. Otherwise leave the containers alone.
		stopping = a.shutdown.guard.Status().State == shutdown.Draining
		a.log.Warn("cannot read from the service manager whether the system is shutting down", "error", err)
		a.notify(a.host.notifier.ExtendTimeout(2 * extension)) // the wait has used most of the stop timeout
	}
	a.log.Info("stopping", "signal", why, "systemStopping", stopping)
	a.kept.reboots.Ends(stopping) // first, because the following steps may not finish in time
	if stopping {
		a.drain(ctx, signals, again) // takes over from a manual drain
	} else {
		ending, ended := context.WithTimeout(ctx, askTimeout)
		defer ended()
		a.shutdown.guard.EndManualDrain(ending) // the service stops, but not the system: stop no more containers
	}
	flushing, flushed := context.WithTimeout(ctx, flushTimeout)
	defer flushed()
	if err := a.plane.recorder.Flush(flushing); err != nil {
		a.log.Debug("unsent events kept for the next start", "error", err)
	}
	return stopping
}

// systemStops asks systemd whether the whole system is stopping. After a second signal, which it
// returns, it waits only shortly for the answer.
func (a *Agent) systemStops(ctx context.Context, signals <-chan os.Signal) (stopping bool, again os.Signal, err error) {
	ctx, cancel := context.WithTimeout(ctx, verdictTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		stopping, err = a.host.manager.Stopping(ctx)
	}()
	if again = a.outlast(done, signals); again != nil {
		select {
		case <-done:
		case <-time.After(askTimeout):
			cancel()
		}
	}
	<-done
	return stopping, again, err
}

// outlast returns when done is closed, or returns the signal that ends the wait. While it waits, it
// extends systemd's stop timeout.
func (a *Agent) outlast(done <-chan struct{}, signals <-chan os.Signal) os.Signal {
	tick := time.NewTicker(extension / 3)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
			a.notify(a.host.notifier.ExtendTimeout(extension))
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				continue // the agent is ending: nothing to reload
			}
			return sig
		}
	}
}

// restoreDelay removes hostler's setting of logind's maximum delay.
func (a *Agent) restoreDelay() {
	// In the other states a shutdown uses the delay.
	if state := a.shutdown.guard.Status().State; state != shutdown.Armed && state != shutdown.Disarmed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if err := a.host.logind.RestoreMaxDelay(ctx); err != nil && !systemd.Absent(err) {
		a.log.Warn("logind maximum delay stays raised", "error", err)
	}
}

// drain stops the pods because the system shuts down. systemd waits for it, within limits. Another
// signal ends only the wait; the pods keep their time. That signal may be an earlier one that was
// repeated.
func (a *Agent) drain(ctx context.Context, signals <-chan os.Signal, again os.Signal) {
	ctx, cancel := context.WithTimeout(ctx, a.shutdown.guard.Status().InhibitDelayNeeded.Duration+teardown)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		record, err := a.shutdown.guard.Drain(ctx, journal.TriggerServiceStop)
		switch {
		case errors.Is(err, shutdown.ErrDelegated), errors.Is(err, shutdown.ErrSwitchedOff):
			a.log.Info("pods left running", "reason", err)
		case err != nil:
			a.log.Error("drain", "error", err)
		default:
			a.log.Info("drained", "graceful", record.Graceful, "pods", len(record.Pods), "killed", record.Killed())
		}
	}()
	a.notify(a.host.notifier.ExtendTimeout(extension))
	if again == nil {
		again = a.outlast(done, signals)
	}
	if again != nil {
		a.log.Warn("drain abandoned", "signal", again.String())
	}
}

// shutdownChanged handles a change of the guard's state.
func (a *Agent) shutdownChanged(c shutdown.Change) {
	a.changed.Send()
	a.notify(a.host.notifier.Status(fmt.Sprintf("shutdown guard %s: %s", c.To, c.Status.Reason)))
	a.reports.drains.ShutdownChanged(c)
}
