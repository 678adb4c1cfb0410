package podman

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// unitCache has what systemd reports about the units of containers.
type unitCache struct {
	byName   map[string]local.Unit // units that exist
	answered bool                  // systemd answered, or there is no systemd
	// serviceOf maps a container's ID to the service in whose cgroup its monitor is.
	serviceOf map[string]string
	monitors  map[string]int // PIDs, of running containers, by container ID
}

// queryUnits requests the units that containers and infra containers name or run in, and Podman's
// own units if they matter.
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
		r.changes.note() // makes the next list request it again
	}
	reported.byName, reported.answered = units, err == nil
	for id, service := range reported.serviceOf {
		if unit := units[service]; unit.Starts && !unit.Oneshot && unit.Main != known[id].monitor {
			r.changes.note() // no file shows when it has started
		}
	}
	return reported
}

// isMain reports whether a container's monitor is the main process of a service.
func (reported unitCache) isMain(c *container, f fact) bool {
	service := reported.serviceOf[c.ID]
	return service != "" && reported.byName[service].Main == f.monitor
}

// isOf reports whether the monitor of a pod's infra container belongs to the unit that the infra
// container names.
func (reported unitCache) isOf(pod podUnit) bool {
	monitor := reported.monitors[pod.infra]
	return pod.name != "" && monitor != 0 && (reported.serviceOf[pod.infra] == pod.name || reported.byName[pod.name].Main == monitor)
}

// unit returns the unit whose stop stops a running container, found as in stopUnit, and the unit's
// stop timeout; nil means no limit.
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
