package podman

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"hostler.io/hostler/runtime/docker/engine"
)

// labelUnit names the systemd unit that a container is of: Podman writes it for whoever
// runs it with a variable of that name, as the services of Quadlet and of `podman
// generate systemd` do, for pods on what holds them together. podman-compose writes it in
// any case, and an image may hold it.
const labelUnit = "PODMAN_SYSTEMD_UNIT"

// podUnits are the units of pods of the last list, by the pods' IDs.
type podUnits struct {
	mu   sync.Mutex
	byID map[string]string
}

func (u *podUnits) set(infra map[string]*container) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byID = map[string]string{}
	for id, c := range infra {
		if unit := c.Labels[labelUnit]; unit != "" {
			u.byID[id] = unit
		}
	}
}

func (u *podUnits) get(id string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.byID[id]
}

// unitsOf are the units that a container says it is of, and its pod.
func (r *Runtime) unitsOf(c *container) []string {
	units := []string{c.Labels[labelUnit], r.podUnits.get(c.podID())}
	return slices.DeleteFunc(units, func(unit string) bool { return unit == "" })
}

// stopUnit begins to stop the unit that a container is of, or its pod, if there is one
// that runs, and names it. What a container says itself, of which its image may be the source, counts
// only if it is true.
func (r *Runtime) stopUnit(ctx context.Context, what, id, unit, podID string) (stops string, err error) {
	if r.units == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	pod := r.podUnits.get(podID)
	if unit != "" && unit != pod {
		now, err := r.inspect(ctx, what, id)
		if err != nil {
			return "", engine.Gone(err)
		}
		if now.State.ConmonPid == 0 { // it does not run
			return "", nil
		}
		stopping, err := r.units.StopUnit(ctx, unit, now.State.ConmonPid)
		switch {
		case err != nil:
			return "", fmt.Errorf("%s: it is of a systemd unit: %w", what, err)
		case stopping:
			return unit, nil
		}
	}
	if pod != "" {
		stopping, err := r.units.StopUnit(ctx, pod, 0)
		switch {
		case err != nil:
			return "", fmt.Errorf("%s: its pod is of a systemd unit: %w", what, err)
		case stopping:
			return pod, nil
		}
	}
	return "", nil
}

// awaitTurn waits until the stop of a unit begins: systemd stops others first that are
// ordered after it, and a container of it has not heard that it is to end before that.
// Where systemd does not tell, nobody waits for it.
func (r *Runtime) awaitTurn(ctx context.Context, what, unit string) error {
	for {
		asking, cancel := context.WithTimeout(ctx, r.timeouts.Query)
		stops, err := r.units.UnitStops(asking, unit)
		cancel()
		if err != nil {
			r.log.Debug("systemd does not tell whether a unit stops", "unit", unit, "error", err)
		}
		if (stops || err != nil) && ctx.Err() == nil {
			return nil
		}
		if !engine.AwaitAgain(ctx) {
			return fmt.Errorf("%s: %w while %s waits for other units to stop", what, context.Cause(ctx), unit)
		}
	}
}
