package podman

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

var _ runtime.Starter = (*Runtime)(nil)

// StartContainer starts a container, after what it needs: what holds its pod together, and
// what it was made to require (--requires), which Podman starts if it does not run. For one
// that runs already it does nothing.
func (r *Runtime) StartContainer(ctx context.Context, c runtime.Container) error {
	what := local.Named("start container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	r.changes.note()
	defer r.changes.note()
	request := engine.Request{Verb: http.MethodPost, Path: api + "/containers/" + c.ID + "/start"}
	return r.conn.Ask(ctx, "StartContainer", what, r.timeouts.Start, request, nil)
}

// restartUnit is the service that at boots starts what has the restart policy always,
// whoever has stopped it. From Podman 5.8 on it starts what has unless-stopped as well,
// unless somebody has stopped it, as hostler does.
const restartUnit = "podman-restart.service"

// Restart policies, of podman-run(1).
const (
	policyNone          = "no"
	policyAlways        = "always"
	policyOnFailure     = "on-failure"
	policyUnlessStopped = "unless-stopped"
)

// boots are what systemd starts at boots: units that there are, and whether it starts them.
type boots struct {
	units map[string]bool
	told  bool // by systemd, or there is none
}

// bootsBound is how long systemd may take to tell: a list of what runs does not depend on
// it, and while systemd reads its units anew it answers nobody.
const bootsBound = 2 * time.Second

// askBoots asks systemd about the units that containers name, and about Podman's own if
// that matters.
func (r *Runtime) askBoots(ctx context.Context, list []*container, known map[string]fact) boots {
	if r.units == nil {
		return boots{told: true}
	}
	ask := map[string]bool{}
	for _, c := range list {
		for _, unit := range r.unitsOf(c) {
			ask[unit] = true
		}
		if known[c.ID].policy == policyAlways {
			ask[restartUnit] = true
		}
	}
	if len(ask) == 0 {
		return boots{told: true}
	}
	patience := bootsBound
	if deadline, bounded := ctx.Deadline(); bounded {
		patience = min(patience, time.Until(deadline)/4)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	units, err := r.units.UnitsAtBoot(ctx, slices.Sorted(maps.Keys(ask))...)
	if err != nil {
		r.log.Debug("systemd does not tell what it starts at boots", "error", err)
		r.changes.note() // the next list is to ask again
	}
	return boots{units: units, told: err == nil}
}

// restart says who starts a container again after a boot. No service of Podman's looks at
// on-failure then, unlike dockerd.
func (r *Runtime) restart(c *container, policy string, b boots) runtime.Restart {
	units := r.unitsOf(c)
	if policy == "" || !b.told && (len(units) > 0 || policy == policyAlways) {
		return runtime.RestartUnknown
	}
	for _, unit := range units {
		if _, there := b.units[unit]; there {
			return runtime.RestartByUnit
		}
	}
	switch {
	case policy == policyUnlessStopped, policy == policyAlways && !b.units[restartUnit]:
		return runtime.RestartUnlessStopped
	case policy == policyAlways:
		return runtime.RestartByRuntime
	case policy == policyOnFailure:
		return runtime.RestartNotAtBoot
	}
	return runtime.RestartNever
}
