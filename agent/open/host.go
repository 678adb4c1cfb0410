package open

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/systemd"
)

// Runtimes opens the configured runtimes, or the search for them.
func Runtimes(cfg config.Runtimes, observe func(runtime, method string, took time.Duration, err error), units local.Units, log *slog.Logger) (*discovery.Runtimes, error) {
	o := discovery.Options{Auto: cfg.Auto, Observe: observe, Units: units, Log: log}
	for _, r := range cfg.List {
		o.Configured = append(o.Configured, local.Candidate{Type: r.Type, Path: r.Endpoint})
	}
	return discovery.New(o)
}

// Units adapts systemd's manager to the runtimes, whose containers may belong to units.
type Units struct{ *systemd.Manager }

// Units returns the units that exist, by name.
func (u Units) Units(ctx context.Context, names ...string) (map[string]local.Unit, error) {
	known, err := u.UnitsThatAre(ctx, names...)
	list := make(map[string]local.Unit, len(known))
	for name, unit := range known {
		list[name] = local.Unit{
			Instance: unit.FromTemplate(), AtBoot: unit.AtBoot(), Runs: unit.Runs(), Starts: unit.Starts(),
			Oneshot: unit.Type == "oneshot" && !unit.RemainAfterExit, Main: int(unit.MainPID), TimeoutStop: unit.TimeoutStop,
		}
	}
	return list, err
}

// HoldStop queues the stop of a unit.
func (u Units) HoldStop(ctx context.Context, name string, atMost time.Duration, before func(ctx context.Context, names []string) error) (local.Hold, error) {
	hold, err := u.Manager.HoldStop(ctx, name, atMost, before)
	if hold == nil {
		return nil, err
	}
	return hold, err
}

// Files returns the TLS files of the network listeners; nil without one.
func Files(cfg config.API, log *slog.Logger) *listen.Files {
	if cfg.TLS.Certificate == "" {
		return nil
	}
	return listen.NewFiles(listen.Paths{Certificate: cfg.TLS.Certificate, Key: cfg.TLS.Key, ClientCA: cfg.TLS.ClientCA, Section: "api.tls"}, log.With("component", "api"))
}

// JournalFile returns the path of the journal of shutdowns.
func JournalFile(cfg config.Config) string {
	return filepath.Join(cfg.State.Directory, "shutdown.json")
}

// Boot returns an ID of the current boot. A soft-reboot keeps the kernel's boot ID, but changes the
// start time of the service manager.
func Boot(bootID string, manager *systemd.Manager, log *slog.Logger) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	started, err := manager.StartedAt(ctx)
	if err != nil {
		if !errors.Is(err, systemd.ErrNotSystemd) {
			log.Warn("unknown start time of the service manager: a soft reboot may not be detected", "error", err)
		}
		return bootID
	}
	return fmt.Sprintf("%s@%d", bootID, started.Unix())
}
