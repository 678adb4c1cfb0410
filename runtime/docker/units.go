package docker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/moby/moby/api/types/container"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/unitclient"
)

// findClients notes which of the containers a service runs by a client.
func (r *Runtime) findClients(list []*container.Summary, known map[string]fact) {
	if r.units == nil || !slices.ContainsFunc(list, func(c *container.Summary) bool { return state(c.State) == runtime.Running }) {
		return
	}
	clients, err := unitclient.Find(r.procRoot)
	if err != nil {
		r.log.Debug("processes cannot be listed: which containers services run is not known", "error", err)
		return
	}
	for _, c := range list {
		f := known[c.ID]
		i := slices.IndexFunc(clients, func(client unitclient.Client) bool { return client.Runs(name(c), c.ID, c.Labels) })
		if f.client = (unitclient.Client{}); i >= 0 {
			f.client = clients[i]
		}
		known[c.ID] = f
	}
}

// unitsBound is how long systemd may take to answer: a list of containers does not depend on it.
const unitsBound = 2 * time.Second

// askUnits asks systemd about the services that run containers by a client which lives. Those
// about which it does not answer are missing.
func (r *Runtime) askUnits(ctx context.Context, known map[string]fact) map[string]local.Unit {
	names := map[string]bool{}
	for _, f := range known {
		if f.client.Alive(r.procRoot) {
			names[f.client.Service] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	patience := unitsBound
	if deadline, bounded := ctx.Deadline(); bounded {
		patience = min(patience, time.Until(deadline)/4)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	units, err := r.units.Units(ctx, slices.Sorted(maps.Keys(names))...)
	if err != nil {
		r.log.Debug("systemd does not answer about the services that run containers", "error", err)
	}
	return units
}

// ofUnit adds to a container which unit runs it.
func (r *Runtime) ofUnit(c *runtime.Container, f fact, units map[string]local.Unit) {
	unit, known := units[f.client.Service]
	if !known || !unit.Runs || c.State != runtime.Running || !f.client.Alive(r.procRoot) {
		return
	}
	c.Unit = f.client.Service
	if unit.AtBoot && c.Restart != runtime.RestartByRuntime { // dockerd starts that one before its unit can
		c.Restart = runtime.RestartByUnit
	}
}

// unitOf is the service that runs a container by a client which lives; empty if there is none.
func (r *Runtime) unitOf(id string) string {
	r.facts.mu.Lock()
	client := r.facts.byID[id].client
	r.facts.mu.Unlock()
	if r.units == nil || !client.Alive(r.procRoot) {
		return ""
	}
	return client.Service
}

// stopUnit begins to stop the service that has run a container which has ended, unless it runs
// others that have not: its client may end, and systemd start both again. A stop that systemd
// begins while containers run would not do: clients pass on no other signal than SIGTERM, and
// Compose, to which systemd sends two of them, kills its containers.
func (r *Runtime) stopUnit(ctx context.Context, what, unit string) error {
	list, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.facts.mu.Lock()
	busy := slices.ContainsFunc(list, func(c container.Summary) bool {
		return state(c.State) == runtime.Running && r.facts.byID[c.ID].client.Service == unit
	})
	r.facts.mu.Unlock()
	if busy {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	if _, err := r.units.StopUnit(ctx, unit, 0, runtime.ReportUnitStops); err != nil {
		return fmt.Errorf("%s: it is run by a systemd unit: %w", what, err)
	}
	return nil
}
