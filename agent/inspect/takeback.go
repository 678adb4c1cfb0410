package inspect

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/systemd"
)

// takeBackTimeout bounds TakeBack. It runs when a service stops, even on a busy host, and is not
// repeated.
const takeBackTimeout = 15 * time.Second

// Ended says how a run of a service ended.
type Ended struct {
	Service string // its unit
	Result  string // SERVICE_RESULT in systemd.exec(5); empty if the caller is not ExecStopPost=
	Refused bool   // the agent rejects its configuration
}

// TakeBack removes the logind drop-in that a killed agent left. It does so only if nothing needs
// the raised delay. That means: no agent runs or is about to start, the host is not shutting down,
// and no kubelet uses the delay.
func TakeBack(ctx context.Context, ended Ended, log *slog.Logger) error {
	logind := systemd.NewLogind(systemd.LogindOptions{Log: log})
	return errors.Join(takeBack(ctx, logind, systemd.NewManager(""), ended, "/proc", log), logind.Close())
}

func takeBack(ctx context.Context, logind *systemd.Logind, manager *systemd.Manager, ended Ended, proc string, log *slog.Logger) error {
	if ended.Result == "success" || !logind.Files().DropIn {
		return nil // an agent that was not killed removes the drop-in itself if necessary
	}
	ctx, cancel := context.WithTimeout(ctx, takeBackTimeout)
	defer cancel()
	unit, err := manager.Unit(ctx, ended.Service)
	if err != nil || !abandoned(unit, ended) {
		return err
	}
	if stopping, err := manager.Stopping(ctx); err != nil || stopping {
		return err
	}
	if preparing, err := logind.Preparing(ctx); preparing || err != nil && !systemd.Absent(err) {
		return err
	}
	if kubelets := owner.FindKubelets(proc); kubelets.Evidence() != "" {
		locks, err := logind.ListInhibitors(ctx)
		if err != nil && !systemd.Absent(err) || kubelets.Lock(proc, locks) != nil {
			return err
		}
	}
	if err := logind.RestoreMaxDelay(ctx); err != nil {
		return err
	}
	log.Info("removed stale logind drop-in", "file", systemd.DropInPath)
	return nil
}

// abandoned reports whether no agent of this service will run unless a user starts one. systemd
// restarts an agent that was killed or failed, except if a stop is requested or Restart= is "no".
// If a restart is requested, the next agent raises the delay again.
func abandoned(unit systemd.Unit, ended Ended) bool {
	switch unit.ActiveState {
	case "inactive", "failed":
		return true
	case "deactivating":
		return unit.Job || unit.Restart == "no" || ended.Refused
	}
	return false
}
