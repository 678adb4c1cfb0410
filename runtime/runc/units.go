package runc

import (
	"slices"

	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/unitclient"
)

// unitOf returns the service of the client that is among the ancestors of a container's first process,
// or "". It returns "" if there is no systemd to stop it.
func (r *Runtime) unitOf(id string, parents []int) string {
	if r.units == nil {
		return ""
	}
	clients := unitclient.Among(r.procRoot, parents)
	i := slices.IndexFunc(clients, func(c unitclient.Client) bool { return c.Runs(id, id, nil) })
	if i < 0 {
		return ""
	}
	return clients[i].Service
}

func (r *Runtime) stopOf(unit string) local.UnitStop {
	return local.UnitStop{Units: r.units, Name: unit, Query: r.timeouts.Query, Log: r.log}
}
