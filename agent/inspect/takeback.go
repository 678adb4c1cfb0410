package inspect

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/systemd"
)

// takeBackTimeout bounds all that TakeBack asks: it is called when a service stops, also on
// a host that is busy, and nobody tries again.
const takeBackTimeout = 15 * time.Second

// Ended is how a run of a service ended.
type Ended struct {
	Service string // its unit
	Result  string // as the service manager tells it, see SERVICE_RESULT in systemd.exec(5); empty for who is not asked by it
	Refused bool   // the agent refuses its configuration
}

// TakeBack has logind grant again what it did without hostler, where an agent that was
// killed has left it raised and nobody needs that: no agent runs or is about to be started
// again, the host is not going down, and no kubelet counts on it.
func TakeBack(ctx context.Context, ended Ended, log *slog.Logger) error {
	logind := systemd.NewLogind(systemd.LogindOptions{Log: log})
	return errors.Join(takeBack(ctx, logind, systemd.NewManager(""), ended, "/proc", log), logind.Close())
}

func takeBack(ctx context.Context, logind *systemd.Logind, manager *systemd.Manager, ended Ended, proc string, log *slog.Logger) error {
	if ended.Result == "success" || !logind.Files().DropIn {
		return nil // an agent that ends by itself knows what to leave
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

// abandoned reports whether no agent of this service guards the host, nor will unless somebody
// starts one. systemd starts one again that was killed, or ended with an error, unless it was
// told to stop the service, or not to start it again. Told to start it again, it has that done
// by an agent that raises the delay again.
func abandoned(unit systemd.Unit, ended Ended) bool {
	switch unit.ActiveState {
	case "inactive", "failed":
		return true
	case "deactivating":
		return unit.Job || unit.Restart == "no" || ended.Refused
	}
	return false
}
