package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/systemd"
)

// TakeBack has logind grant again what it did without hostler, where an agent that was
// killed has left it raised and nobody needs that: no agent runs or is about to be started
// again, the host is not going down, and no kubelet counts on it. The service manager tells
// the result of the service's run; empty for who is not asked by it.
func TakeBack(ctx context.Context, service, result string, log *slog.Logger) error {
	logind := systemd.NewLogind(systemd.LogindOptions{Log: log})
	kubelet := func() bool { _, found := owner.FindKubelet("/proc"); return found }
	return errors.Join(takeBack(ctx, logind, systemd.NewManager(""), service, result, kubelet), logind.Close())
}

func takeBack(ctx context.Context, logind *systemd.Logind, manager *systemd.Manager, service, result string, kubelet func() bool) error {
	if result == "success" || !logind.Files().DropIn {
		return nil // an agent that ends by itself knows what to leave
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	unit, err := manager.Unit(ctx, service)
	if err != nil || !forsaken(unit, result) {
		return err
	}
	if stopping, err := manager.Stopping(ctx); err != nil || stopping {
		return err
	}
	if preparing, err := logind.Preparing(ctx); preparing || err != nil && !absent(err) {
		return err
	}
	if kubelet() {
		locks, err := logind.ListInhibitors(ctx)
		if err != nil && !absent(err) || slices.ContainsFunc(locks, func(l systemd.InhibitorLock) bool { return l.Who == owner.Kubelet }) {
			return err
		}
	}
	return logind.RestoreMaxDelay(ctx)
}

// forsaken tells whether no agent of this service guards the host, nor will unless somebody
// starts one. A service of which a process was killed is started again by systemd, but for
// one that it was told to stop, or not to start again; one that has ended with an error
// refuses its configuration, and will again.
func forsaken(unit systemd.Unit, result string) bool {
	switch unit.ActiveState {
	case "inactive", "failed":
		return true
	case "deactivating":
		return unit.Job || unit.Restart == "no" || result == "exit-code"
	}
	return false
}

// absent tells whether an error says that there is nobody who could delay a shutdown.
func absent(err error) bool {
	return errors.Is(err, systemd.ErrNoBus) || errors.Is(err, systemd.ErrNoLogind)
}
