package podman

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/unitclient"
)

// clients are the commands in services, such as `podman run`, that run containers of the last list,
// by the containers' IDs.
type clients struct {
	mu   sync.Mutex
	byID map[string]unitclient.Client
}

func (k *clients) get(id string) unitclient.Client {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byID[id]
}

// clientUnit is the service that runs a container by a client which lives; empty if there is none.
func (r *Runtime) clientUnit(id string) string {
	if client := r.clients.get(id); r.units != nil && client.Alive(r.procRoot) {
		return client.Service
	}
	return ""
}

// findClients notes which containers that run a service runs by a client.
func (r *Runtime) findClients(list []*container) {
	if r.units == nil || !slices.ContainsFunc(list, func(c *container) bool { return c.state() == runtime.Running }) {
		return
	}
	found, err := unitclient.Find(r.procRoot)
	if err != nil {
		r.log.Debug("processes cannot be listed: which containers services run is not known", "error", err)
	}
	byID := map[string]unitclient.Client{}
	for _, c := range list {
		i := slices.IndexFunc(found, func(k unitclient.Client) bool { return k.Runs(c.name(), c.ID, c.Labels) })
		if i >= 0 {
			byID[c.ID] = found[i]
		}
	}
	r.clients.mu.Lock()
	defer r.clients.mu.Unlock()
	r.clients.byID = byID
}

// stopOfClient stops a container that a service runs by a client, and the service as soon as its
// last container has ended: systemd may start both again.
func (r *Runtime) stopOfClient(ctx context.Context, what, unit string, stop func() error) error {
	runtime.ReportUnitStops(ctx, []string{unit}) // which may end with its container
	stopped := stop()
	if stopped != nil && !errors.Is(stopped, runtime.ErrKilled) {
		return stopped
	}
	list, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if slices.ContainsFunc(list, func(c container) bool {
		return c.state() == runtime.Running && r.clients.get(c.ID).Service == unit
	}) {
		return stopped
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	if _, err := r.units.StopUnit(ctx, unit, 0, runtime.ReportUnitStops); err != nil {
		return fmt.Errorf("%s: it is run by a systemd unit: %w", what, err)
	}
	return stopped
}
