package podman

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

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

// restartUnit is the service that starts containers with restart policy always at boot, also those
// that were stopped manually. Since Podman 5.8 it also starts unless-stopped, unless they were
// stopped manually. A stop by hostler counts as manual.
const restartUnit = "podman-restart.service"

// Restart policies, of podman-run(1).
const (
	policyNone          = "no"
	policyAlways        = "always"
	policyOnFailure     = "on-failure"
	policyUnlessStopped = "unless-stopped"
)

// restart returns who starts a container again after a boot. Unlike dockerd, Podman does not start
// on-failure then.
func (r *Runtime) restart(c *container, f fact, reported unitCache) runtime.Restart {
	policy, units := f.policy, r.unitsOf(c)
	if reported.isMain(c, f) { // it does not say of which unit it is
		units = append(units, reported.serviceOf[c.ID])
	}
	if policy == "" || !reported.answered && (len(units) > 0 || policy == policyAlways) {
		return runtime.RestartUnknown
	}
	for _, name := range units {
		// An instance of a template is one of any name: podman-compose names one.
		if unit, there := reported.byName[name]; there && (unit.AtBoot || !unit.Instance) {
			return runtime.RestartByUnit
		}
	}
	restarts := reported.byName[restartUnit].AtBoot
	switch {
	case policy == policyUnlessStopped, policy == policyAlways && !restarts:
		return runtime.RestartUnlessStopped
	case policy == policyAlways:
		return runtime.RestartByRuntime
	case policy == policyOnFailure:
		return runtime.RestartNotAtBoot
	}
	return runtime.RestartNever
}

// StartNeeds returns the folders that a container is bound to, its devices, what its local
// volumes are mounted from, and Podman's own service that starts it.
func (r *Runtime) StartNeeds(ctx context.Context, c runtime.Container) (needs runtime.StartNeeds, err error) {
	what := "read dependencies of " + local.Named("container", c.Name, c.ID)
	about, err := r.inspect(ctx, what, c.ID)
	if err != nil {
		return needs, err
	}
	for _, m := range about.Mounts {
		if m.Type == "bind" {
			needs.Paths = append(needs.Paths, m.Source)
			continue
		}
		if m.Type != "volume" || m.Name == "" || !local.IsLocalVolume(m.Driver) {
			continue
		}
		var volume struct {
			Driver  string
			Options map[string]string
		}
		if err := r.get(ctx, "InspectVolume", what, "/volumes/"+url.PathEscape(m.Name)+"/json", nil, &volume); err != nil {
			return needs, err
		}
		needs.Paths = append(needs.Paths, local.VolumePaths(volume.Driver, volume.Options)...)
	}
	for _, d := range about.HostConfig.Devices {
		needs.Paths = append(needs.Paths, d.PathOnHost)
	}
	if c.Restart == runtime.RestartByRuntime {
		needs.Units = []string{restartUnit}
	}
	return needs, nil
}
