package runc

import (
	"slices"

	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/unitclient"
)

// clients returns the commands in services that run containers. It returns none if there is no
// systemd to stop them.
func (r *Runtime) clients() []unitclient.Client {
	if r.units == nil {
		return nil
	}
	clients, err := unitclient.Find(r.procRoot, "", nil)
	if err != nil {
		r.log.Debug("cannot list processes, services of containers unknown", "error", err)
	}
	return clients
}

// unitOf returns the service of the client that is an ancestor of a container's first process, or
// "".
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
