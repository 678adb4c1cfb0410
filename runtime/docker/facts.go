package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/unitclient"
)

const (
	// factsAtOnce bounds concurrent requests for one list of pods.
	factsAtOnce = 4
	// patienceShare is the share of the total time that one request may take (1/patienceShare).
	// Docker does not answer while it changes the container, such as a start that hangs while it
	// mounts a volume.
	patienceShare = 5
	// retryAfter is the pause after a failed request, so that one broken container does not cost
	// a call for each list.
	retryAfter = time.Minute
)

// fact has what a list of containers lacks.
type fact struct {
	created     time.Time // to the nanosecond; zero until known
	stopSignal  string    // name or number; empty for SIGTERM
	stopTimeout *time.Duration
	restart     runtime.Restart
	joins       []string // IDs or names of containers without which it cannot start
	uses        []string // other containers that it needs

	// Its end at the last request. It may have been started since.
	finishedAt time.Time
	exitCode   int32

	// At the time of the request. If it has ended, startedAt is the start of its last run.
	running   bool
	startedAt time.Time

	client       unitclient.Client // its client, if it is part of a service, at the last list; else zero
	searchedAt   time.Time         // last search for the client; zero if there was none since the request
	unsearchedAt time.Time         // last search, if it failed: the image cannot be read

	failedAt time.Time // of the last request, if it failed
	changed  int       // number of the last change before the request
}

// facts has the facts about the containers of the last list.
type facts struct {
	mu          sync.Mutex
	byID        map[string]fact
	watchers    int            // open event streams; without one, each list requests all facts
	changeCount int            // changes of all containers
	changes     map[string]int // last change of each container, after which it is requested again
	gap         int            // last change at which events of any container may have been missed
}

// watch records that an event stream has opened (1) or ended (-1). Events before the start or after
// the end of a stream are missed.
func (f *facts) watch(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers += n
	f.changeCount++
	f.gap = f.changeCount
}

// change records that a container has changed, by `docker update --restart` or a start. Facts about
// its end are outdated, even if the next list looks the same.
func (f *facts) change(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changes == nil {
		f.changes = map[string]int{}
	}
	f.changeCount++
	f.changes[id] = f.changeCount
}

// complete returns the facts about each container, and queries Docker for new containers. Facts
// that Docker does not return stay unknown until a later list, so that no single container makes a
// list fail.
func (f *facts) complete(ctx context.Context, r *Runtime, list []container.Summary) map[string]fact {
	known := make(map[string]fact, len(list))
	var ask []*container.Summary
	var changes []int // for each container in ask
	f.mu.Lock()
	for i := range list {
		c := &list[i]
		old := f.byID[c.ID]
		known[c.ID] = old
		// After a change, Docker may answer again: a start that blocked the container is over.
		now, stale := max(f.changes[c.ID], f.gap), f.watchers == 0 || old.incomplete(c)
		if now != old.changed || stale && time.Since(old.failedAt) >= retryAfter {
			ask, changes = append(ask, c), append(changes, now)
		}
	}
	f.mu.Unlock()
	if len(ask) > 0 {
		f.ask(ctx, r, ask, changes, known)
	}
	r.findClients(ctx, list, known)
	// Containers that are not in the list were removed.
	f.mu.Lock()
	f.byID = known
	maps.DeleteFunc(f.changes, func(id string, _ int) bool { _, there := known[id]; return !there })
	f.mu.Unlock()
	return known
}

func (f fact) incomplete(c *container.Summary) bool {
	return f.created.IsZero() || !f.failedAt.IsZero() || state(c.State) == runtime.Exited && !f.endFits(c)
}

// endFits reports whether the known end matches the one in the list, such as "Exited (137) 5
// minutes ago". If not, the container was started again and has ended again. Docker formats the
// text with the same package.
func (f fact) endFits(c *container.Summary) bool {
	if f.finishedAt.IsZero() {
		return false
	}
	ago, reported := strings.CutSuffix(c.Status, " ago")
	if !reported { // "Dead", "Removal In Progress"
		return true
	}
	age := time.Since(f.finishedAt)
	// The list is up to two seconds old.
	for _, late := range []time.Duration{0, time.Second, 2 * time.Second} {
		if ago == fmt.Sprintf("Exited (%d) %s", f.exitCode, units.HumanDuration(max(0, age-late))) {
			return true
		}
	}
	return false
}

// ask requests missing facts and stores them in known. Requests that timed out are sent again with
// the next list. It stops as soon as Docker itself does not answer, because every further container
// would cost a deadline.
func (f *facts) ask(ctx context.Context, r *Runtime, ask []*container.Summary, changes []int, known map[string]fact) {
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	answers := make([]fact, len(ask))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(factsAtOnce)
	for i, c := range ask {
		answers[i] = known[c.ID]
		if ctx.Err() != nil {
			continue // a call that is not made does not count as failed
		}
		group.Go(func() error {
			own, cancel := context.WithTimeout(ctx, r.timeouts.Query/patienceShare)
			defer cancel()
			answer, err := r.ask(own, "get status of "+local.Named("container", name(c), c.ID), c.ID)
			alone := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil // only this request timed out
			switch {
			case err == nil:
				if !answers[i].failedAt.IsZero() {
					r.log.Info("container can be inspected again", "container", name(c), "id", c.ID)
				}
				answers[i] = answer
				answers[i].changed = changes[i]
			case errors.Is(err, engine.ErrNotFound): // removed: it will not be in the next list
			case errors.Is(err, runtime.ErrUnavailable) && !alone || ctx.Err() != nil:
				return err
			default:
				if answers[i].failedAt.IsZero() {
					r.log.Warn("cannot inspect container", "container", name(c), "id", c.ID, "error", err)
				}
				answers[i].failedAt, answers[i].changed = time.Now(), changes[i]
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		r.log.Debug("stopped inspecting containers", "error", err)
	}
	for i, c := range ask {
		known[c.ID] = answers[i]
	}
}

// ask inspects one container.
func (r *Runtime) ask(ctx context.Context, what, id string) (fact, error) {
	resp, err := engine.Get(ctx, r.conn, "ContainerInspect", what, r.timeouts.Query, func(ctx context.Context, c *client.Client) (client.ContainerInspectResult, error) {
		return c.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	})
	if err != nil {
		return fact{}, err
	}
	c := resp.Container
	if c.State == nil || c.Config == nil {
		return fact{}, fmt.Errorf("%s: %w: no state or no configuration in it", what, runtime.ErrInvalidAnswer)
	}
	f := fact{created: parseTime(c.Created), stopSignal: c.Config.StopSignal, stopTimeout: stopTimeout(c.Config.StopTimeout), restart: restart(c.HostConfig)}
	f.joins, f.uses = others(c)
	if f.created.IsZero() {
		return fact{}, fmt.Errorf("%s: %w: created at %q", what, runtime.ErrInvalidAnswer, c.Created)
	}
	f.running, f.startedAt = c.State.Running, parseTime(c.State.StartedAt)
	if !c.State.Running {
		f.finishedAt, f.exitCode = parseTime(c.State.FinishedAt), int32(c.State.ExitCode)
		if c.HostConfig != nil && c.HostConfig.RestartPolicy.IsOnFailure() && !failed(c) {
			f.restart = runtime.RestartNotAtBoot
		}
	}
	return f, nil
}

// parseTime parses Docker's times. Year 1 means that there is no time.
func parseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() <= 1 {
		return time.Time{}
	}
	return t
}

// restart translates a container's restart policy. When dockerd starts, it starts containers with
// on-failure again depending on their exit code, whoever stopped them (moby#47846).
func restart(c *container.HostConfig) runtime.Restart {
	switch {
	case c == nil:
		return runtime.RestartUnknown
	case c.RestartPolicy.IsUnlessStopped():
		return runtime.RestartUnlessStopped
	case c.RestartPolicy.IsAlways(), c.RestartPolicy.IsOnFailure():
		return runtime.RestartByRuntime
	}
	return runtime.RestartNever
}

// failed reports whether dockerd, when it starts, starts an ended container with the restart policy
// on-failure.
func failed(c container.InspectResponse) bool {
	most := c.HostConfig.RestartPolicy.MaximumRetryCount
	return c.State.ExitCode != 0 && (most == 0 || c.RestartCount < most)
}

// others returns containers, by ID or name. Without those in joins, whose namespaces or links the
// container uses, dockerd does not start it. uses are those whose volumes it uses.
func others(c container.InspectResponse) (joins, uses []string) {
	h := c.HostConfig
	if h == nil {
		return nil, nil
	}
	for _, mode := range []string{string(h.NetworkMode), string(h.PidMode), string(h.IpcMode)} {
		if other, shares := strings.CutPrefix(mode, "container:"); shares {
			joins = append(joins, other)
		}
	}
	links := slices.Clone(h.Links) // "/db:/web/alias"
	if c.NetworkSettings != nil {
		for _, network := range c.NetworkSettings.Networks {
			if network != nil {
				links = append(links, network.Links...) // "db:alias", in user-defined networks
			}
		}
	}
	for _, link := range links {
		other, _, _ := strings.Cut(link, ":")
		joins = append(joins, strings.TrimPrefix(other, "/"))
	}
	for _, from := range h.VolumesFrom { // "db:ro"
		other, _, _ := strings.Cut(from, ":")
		uses = append(uses, other)
	}
	return joins, uses
}

// stopTimeout translates the timeout with which a container was created. nil means none, and a
// negative number means forever.
func stopTimeout(seconds *int) *time.Duration {
	if seconds == nil {
		return nil
	}
	d := time.Duration(math.MaxInt32) * time.Second
	if *seconds >= 0 {
		d = min(d, time.Duration(*seconds)*time.Second)
	}
	return &d
}
