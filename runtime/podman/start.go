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

// StartContainer starts a container after its dependencies: the infra container of its pod, and
// required containers (--requires), which Podman starts if they do not run. If the container runs
// already, it does nothing.
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

// restartUnit is the service that starts containers with restart policy always at boot, even if
// they were stopped manually. Since Podman 5.8 it also starts those with unless-stopped, except if
// they were stopped manually. A stop by hostler counts as manual.
const restartUnit = "podman-restart.service"

// Restart policies, of podman-run(1).
const (
	policyNone          = "no"
	policyAlways        = "always"
	policyOnFailure     = "on-failure"
	policyUnlessStopped = "unless-stopped"
)

// restart returns who starts a container again after a boot. Unlike dockerd, Podman does not start
// containers with on-failure then.
func (r *Runtime) restart(c *container, f fact, reported unitCache) runtime.Restart {
	policy, units := f.policy, r.unitsOf(c)
	if reported.isMain(c, f) { // the container does not name its unit
		units = append(units, reported.serviceOf[c.ID])
	}
	if policy == "" || !reported.answered && (len(units) > 0 || policy == policyAlways) {
		return runtime.RestartUnknown
	}
	for _, name := range units {
		// An instance of a template exists for any name: podman-compose names one.
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

// StartNeeds returns the folders that are bound into a container, its devices, what its local
// volumes are mounted from, and the Podman service that starts it at boot.
func (r *Runtime) StartNeeds(ctx context.Context, c runtime.Container) (needs runtime.StartNeeds, err error) {
	what := "read dependencies of " + local.Named("container", c.Name, c.ID)
	about, err := r.inspect(ctx, what, c.ID)
	if err != nil {
		return needs, err
	}
	var anonymous local.Anonymous
	for _, m := range about.Mounts {
		if m.Type == "bind" {
			needs.Paths = append(needs.Paths, m.Source)
			continue
		}
		if m.Type != "volume" || !anonymous.Inspect(m.Driver, m.Name) {
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
