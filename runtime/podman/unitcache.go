package podman

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// unitCache are what systemd reports of the units of containers.
type unitCache struct {
	byName   map[string]local.Unit // those that there are
	answered bool                  // or there is no systemd
	// serviceOf is in which service's cgroup a container's monitor is, by the container's ID.
	serviceOf map[string]string
	monitors  map[string]int // of containers that run, by their IDs
}

// queryUnits asks systemd about the units that containers and infra containers of pods name or are in,
// and about Podman's own if that matters.
func (r *Runtime) queryUnits(ctx context.Context, own, infra []*container, known map[string]fact) unitCache {
	reported := unitCache{answered: true, serviceOf: map[string]string{}, monitors: map[string]int{}}
	if r.units == nil {
		return reported
	}
	ask := map[string]bool{}
	for _, c := range slices.Concat(own, infra) {
		for _, unit := range r.unitsOf(c) {
			ask[unit] = true
		}
		if known[c.ID].policy == policyAlways {
			ask[restartUnit] = true
		}
		reported.monitors[c.ID] = known[c.ID].monitor
		if service := r.serviceWith(known[c.ID].monitor, c.ID); service != "" {
			reported.serviceOf[c.ID], ask[service] = service, true
		}
	}
	units, err := local.QueryUnits(ctx, r.units, ask)
	if err != nil {
		r.log.Debug("cannot read units of containers from systemd", "error", err)
		r.changes.note() // the next list is to ask again
	}
	reported.byName, reported.answered = units, err == nil
	for id, service := range reported.serviceOf {
		if unit := units[service]; unit.Starts && !unit.Oneshot && unit.Main != known[id].monitor {
			r.changes.note() // no file reports when it has started
		}
	}
	return reported
}

// isMain reports whether a container's monitor is the main process of a service.
func (reported unitCache) isMain(c *container, f fact) bool {
	service := reported.serviceOf[c.ID]
	return service != "" && reported.byName[service].Main == f.monitor
}

// isOf reports whether the monitor of a pod's infra container is of the unit that the container names.
func (reported unitCache) isOf(pod podUnit) bool {
	monitor := reported.monitors[pod.infra]
	return pod.name != "" && monitor != 0 && (reported.serviceOf[pod.infra] == pod.name || reported.byName[pod.name].Main == monitor)
}

// unit names the unit by whose stop a container that runs is stopped, as stopUnit finds it then,
// and the time-out of that stop; nil for no limit.
func (r *Runtime) unit(c *container, f fact, reported unitCache) (name string, grace *time.Duration) {
	if c.state() != runtime.Running {
		return "", nil
	}
	own, pod, service := unitOf(c.Labels), r.podUnits.get(c.podID()), reported.serviceOf[c.ID]
	switch {
	case reported.isMain(c, f) && (own != "" || pod.name == ""), own != "" && own != pod.name && service == own:
		name = service
	case reported.isOf(pod):
		name = pod.name
	}
	unit := reported.byName[name]
	if !unit.Runs {
		return "", nil
	}
	if unit.TimeoutStop > 0 {
		grace = &unit.TimeoutStop
	}
	return name, grace
}
