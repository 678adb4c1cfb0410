// Package backend answers the requests of the API, for a person on this host and for
// programs: how the host is, what a shutdown or a collection would do, what may be wrong.
//
// It owns how an answer is put together from the parts of the agent. It changes nothing by
// itself: collections, drains and reloads are carried out by others.
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

// checkTimeout bounds how long `hostler status` waits for a runtime: a person looks because
// something is wrong.
const checkTimeout = 3 * time.Second

// Reloader makes the configuration effective that the files have now.
type Reloader interface {
	Reload(ctx context.Context) (api.ReloadReport, error)
}

// Backend implements api.Backend. Each part answers some routes. It is safe for concurrent
// use.
type Backend struct {
	*maintenance.Drainer // what a person does to the node
	*Reboots
	*fleet.Reader // what a person sees of the other hosts
	Reloader
	*Host
	*Workloads
	*Collections
	*Checkup
	Configuration
	Health
}

var _ api.Backend = (*Backend)(nil)

// Configuration answers what is configured.
type Configuration struct{ Settings *settings.Settings }

// Config returns the effective configuration, and how the files differ from it.
func (c Configuration) Config(context.Context) (api.Config, error) {
	text, err := c.Settings.Config().Shown()
	return api.Config{YAML: string(text), Configuration: c.Settings.Compare()}, err
}

// Health answers whether the agent works.
type Health struct {
	Loops    loop.Set
	Keeper   *controlplane.LeaseKeeper
	Settings *settings.Settings
}

// Healthy names the loops that make no progress, and says if the Lease has expired.
func (h Health) Healthy() error {
	return errors.Join(h.Loops.Healthy(), h.Keeper.Stats().Expired(time.Duration(h.Settings.Config().Lease.Duration)))
}
