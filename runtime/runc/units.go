package runc

import (
	"slices"

	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/unitclient"
)

// clients are the commands in services that run containers; none where nobody could stop them.
func (r *Runtime) clients() []unitclient.Client {
	if r.units == nil {
		return nil
	}
	clients, err := unitclient.Find(r.procRoot, func(int) string { return "" })
	if err != nil {
		r.log.Debug("cannot list processes, services of containers unknown", "error", err)
	}
	return clients
}

// unitOf is the service of the client that a container's first process has come from; empty if
// there is none.
func unitOf(id string, parents []int, clients []unitclient.Client) string {
	i := slices.IndexFunc(clients, func(c unitclient.Client) bool { return slices.Contains(parents, c.PID) && c.Runs(id, id, nil) })
	if i < 0 {
		return ""
	}
	return clients[i].Service
}

func (r *Runtime) stopOf(unit string) local.UnitStop {
	return local.UnitStop{Units: r.units, Name: unit, Query: r.timeouts.Query, Log: r.log}
}
