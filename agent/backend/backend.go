// Package backend answers the requests of the API: the state of the host, the plans of a shutdown
// or a collection, and the diagnosis.
//
// It owns how an answer is put together from the parts of the agent. It delegates changes: other
// packages execute collections, drains and reloads.
package backend

import (
	"context"
	"errors"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/loop"
)

// checkTimeout bounds how long `hostler status` waits for a runtime. A user often runs it because a
// runtime does not answer.
const checkTimeout = 3 * time.Second

// Reloader makes the current configuration files effective.
type Reloader interface {
	Reload(ctx context.Context) (api.ReloadReport, error)
}

// Backend implements api.Backend. Each part serves some routes. It is safe for concurrent use.
type Backend struct {
	*maintenance.Drainer // drain, cordon and leave
	*Reboots
	*fleet.Reader // the other hosts
	Reloader
	*Host
	*Workloads
	*Collections
	*Checkup
	Configuration
	Health
}

var _ api.Backend = (*Backend)(nil)

// Configuration answers requests about the configuration.
type Configuration struct{ Settings *settings.Settings }

// Config returns the effective configuration, and how the files differ from it.
func (c Configuration) Config(context.Context) (api.Config, error) {
	text, err := c.Settings.Config().Shown()
	return api.Config{YAML: string(text), Configuration: c.Settings.Compare()}, err
}

// Health answers whether the agent is healthy.
type Health struct {
	Loops    loop.Set
	Keeper   *controlplane.LeaseKeeper
	Settings *settings.Settings
}

// Healthy names the loops that make no progress, and says if the Lease has expired.
func (h Health) Healthy() error {
	return errors.Join(h.Loops.Healthy(), h.Keeper.Stats().Expired(time.Duration(h.Settings.Config().Lease.Duration)))
}
