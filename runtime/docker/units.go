package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/moby/moby/api/types/container"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/unitclient"
)

// clientBound is how long after a container's start a service may start its client, such as `docker
// wait` after `docker start`. No event reports that.
const clientBound = time.Minute

// findClients records which containers a service runs through a client.
func (r *Runtime) findClients(ctx context.Context, list []container.Summary, known map[string]fact) {
	var lacking []*container.Summary
	for i := range list {
		if r.units != nil && r.lacksClient(known[list[i].ID]) {
			lacking = append(lacking, &list[i])
		}
	}
	if len(lacking) == 0 {
		return
	}
	now := time.Now()
	clients, err := unitclient.Find(ctx, r.files, r.procRoot, r.path, func(pid int) string {
		service, err := r.units.MainOf(ctx, pid)
		if err != nil {
			return ""
		}
		return service
	})
	if err != nil {
		r.log.Debug("cannot list processes, services of containers unknown", "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query) // for all images
	defer cancel()
	type answer struct {
		labels map[string]string
		err    error
	}
	images := map[string]answer{}
	for _, c := range lacking {
		f := known[c.ID]
		f.client, f.searchedAt, f.unsearchedAt = unitclient.Client{}, now, time.Time{}
		if i := slices.IndexFunc(clients, func(client unitclient.Client) bool { return client.Runs(name(c), c.ID, c.Labels) }); i >= 0 {
			byLabels := clients[i].Runs("", "", c.Labels)
			image, asked := images[c.ImageID]
			if byLabels && !asked {
				if image.labels, image.err = r.imageLabels(ctx, c.ImageID); ctx.Err() != nil {
					continue // the next list searches again
				}
				images[c.ImageID] = image
			}
			switch {
			case byLabels && image.err != nil:
				r.log.Debug("cannot read the labels of an image, service of its container unknown", "container", c.ID, "image", c.ImageID, "error", image.err)
				f.searchedAt, f.unsearchedAt = time.Time{}, now
			case !byLabels || !clients[i].Runs("", "", image.labels): // else Compose has not created the container
				f.client = clients[i]
			}
		}
		known[c.ID] = f
	}
}

// imageLabels returns the labels of an image; none if it was removed.
func (r *Runtime) imageLabels(ctx context.Context, id string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query/patienceShare)
	defer cancel()
	what := "get labels of image " + id
	image, err := r.images().Inspect(ctx, what, id)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case image.Config == nil:
		return nil, fmt.Errorf("%s: %w: no configuration in it", what, runtime.ErrInvalidAnswer)
	}
	return image.Config.Labels, nil
}

// lacksClient reports whether to search for the client of a container.
func (r *Runtime) lacksClient(f fact) bool {
	switch {
	case !f.running || time.Since(f.unsearchedAt) < retryAfter:
		return false
	case f.client.Service != "": // its service may have restarted the client
		return !f.client.Alive(r.procRoot)
	}
	return f.searchedAt.Before(f.startedAt.Add(clientBound))
}

// queryUnits requests the services that run containers through a client. Services for which systemd
// does not answer are missing in the result.
func (r *Runtime) queryUnits(ctx context.Context, known map[string]fact) map[string]local.Unit {
	names := map[string]bool{}
	for _, f := range known {
		if f.client.Service != "" {
			names[f.client.Service] = true
		}
	}
	units, err := local.QueryUnits(ctx, r.units, names)
	if err != nil {
		r.log.Debug("cannot read services of containers from systemd", "error", err)
	}
	return units
}

// setUnit sets the unit that runs a container.
func setUnit(c *runtime.Container, f fact, units map[string]local.Unit) {
	if c.State != runtime.Running || f.client.Service == "" {
		return
	}
	unit, known := units[f.client.Service]
	switch {
	case !known: // systemd did not answer: the unit may start the container again
		c.Restart = runtime.RestartUnknown
		return
	case !unit.Runs:
		return
	}
	c.Unit = f.client.Service
	if unit.AtBoot && c.Restart != runtime.RestartByRuntime { // else dockerd starts it before its unit can
		c.Restart = runtime.RestartByUnit
	}
}

// unitOf returns the service that runs a container through a client, if that client is alive, or
// "".
func (r *Runtime) unitOf(id string) (unit string, client unitclient.Client) {
	r.facts.mu.Lock()
	client = r.facts.byID[id].client
	r.facts.mu.Unlock()
	if r.units == nil || !client.Alive(r.procRoot) {
		return "", client
	}
	return client.Service, client
}

// stopOfUnit stops a container that a service runs through a client, and the service. If the client
// passes SIGTERM on and that is the container's stop signal, it stops the service, which ends the
// container. Otherwise it sends the stop signal to the container first: systemd sends Compose two
// signals, after which Compose would kill the containers. Before it stops the service's last
// containers, it queues the stop of the service, which begins as soon as they have ended. A
// container that survives the stop of its service is stopped like any other, within the rest of its
// grace.
func (r *Runtime) stopOfUnit(ctx context.Context, what string, c runtime.Container, grace time.Duration, client unitclient.Client) error {
	signal, err := r.stopSignal(ctx, c)
	if err != nil {
		return engine.Gone(err)
	}
	if client.PassesOn && grace > 0 && slices.Contains([]string{"SIGTERM", "TERM", "15"}, signal) {
		stopping, err := r.stopOf(client.Service).Begin(ctx, what, client.PID)
		if err != nil {
			return err
		}
		if stopping {
			ended, left, err := r.awaitUnit(ctx, what, c.ID, client.Service, grace)
			if ended || err != nil {
				return err
			}
			grace = left
		}
	}
	if err := runtime.ReportUnitStops(ctx, []string{client.Service}); err != nil { // the service may end with its container
		return fmt.Errorf("%s: %w", what, err)
	}
	killed := false
	held, err := r.unitStops.Stop(ctx, r.stopOf(client.Service), c.ID, grace, r.runningOf(client.Service), func() (err error) {
		killed, err = r.stop(ctx, what, c, grace)
		return err
	})
	if err == nil && !held {
		err = r.stopUnit(ctx, what, client.Service)
	}
	if err == nil && killed {
		err = fmt.Errorf("%s: %w", what, runtime.ErrKilled)
	}
	return err
}

// runningOf returns the running containers of a service at the last list: IDs and start times.
func (r *Runtime) runningOf(unit string) map[string]time.Time {
	r.facts.mu.Lock()
	defer r.facts.mu.Unlock()
	running := map[string]time.Time{}
	for id, f := range r.facts.byID {
		if f.running && f.client.Service == unit {
			running[id] = f.startedAt
		}
	}
	return running
}

// stopUnit begins to stop the service of an ended container, unless other containers of the service
// still run. Without the stop, its client could end and systemd would start both again.
func (r *Runtime) stopUnit(ctx context.Context, what, unit string) error {
	list, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.facts.mu.Lock()
	busy := slices.ContainsFunc(list, func(c container.Summary) bool {
		return state(c.State) == runtime.Running && r.facts.byID[c.ID].client.Service == unit
	})
	r.facts.mu.Unlock()
	if busy {
		return nil
	}
	_, err = r.stopOf(unit).Begin(ctx, what, 0)
	return err
}

func (r *Runtime) stopOf(unit string) local.UnitStop {
	return local.UnitStop{Units: r.units, Name: unit, Query: r.timeouts.Query, Log: r.log}
}

// errUnitOver ends the wait for a container whose unit has stopped first.
var errUnitOver = errors.New("its unit has stopped")

// awaitUnit waits for the end of a container whose unit is being stopped. The grace begins when the
// unit's stop begins. If the unit has stopped and the container still runs, the client has not
// passed the signal on: awaitUnit returns false and the rest of the grace.
func (r *Runtime) awaitUnit(ctx context.Context, what, id, unit string, grace time.Duration) (ended bool, left time.Duration, err error) {
	stop := r.stopOf(unit)
	began, err := stop.AwaitTurn(ctx, what, time.Now())
	if err != nil {
		return false, 0, err
	}
	over := false
	ended, err = engine.Within(ctx, what, began, grace, func(ctx context.Context) error {
		waiting, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() {
			if !stop.AwaitOver(waiting) {
				return
			}
			if now, err := r.ask(waiting, what, id); err == nil && now.running {
				cancel(errUnitOver)
			}
		}()
		for {
			err := r.awaitEnd(waiting, what, id, grace+r.timeouts.StopMargin)
			if over = errors.Is(context.Cause(waiting), errUnitOver); err == nil || over || !errors.Is(err, runtime.ErrUnavailable) || !engine.AwaitAgain(waiting) {
				return err
			}
		}
	})
	switch {
	case ended:
		return true, 0, r.endOf(ctx, what, id)
	case over:
		return false, max(0, grace-time.Since(began)), nil
	}
	return false, 0, err
}

// endOf returns runtime.ErrKilled if a container that has ended was killed, if Docker still knows
// that.
func (r *Runtime) endOf(ctx context.Context, what, id string) error {
	if now, err := r.ask(ctx, what, id); err == nil && !now.running && now.exitCode == exitKilled {
		return fmt.Errorf("%s: %w", what, runtime.ErrKilled)
	}
	return nil
}

// exitKilled is the exit code after SIGKILL.
const exitKilled = 128 + int32(unix.SIGKILL)
