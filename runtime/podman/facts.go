package podman

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

const (
	// factsAtOnce bounds concurrent requests for one list of pods.
	factsAtOnce = 4
	// defaultStopTimeout is the stop timeout of containers without an explicit one. Podman does not
	// report whether it was set explicitly.
	defaultStopTimeout = 10 * time.Second
)

// fact has what a list of containers lacks.
type fact struct {
	// Facts that do not change while the container exists.

	stopTimeout *time.Duration
	needs       []string // IDs
	volumes     []string // IDs or names of containers whose volumes it mounts
	annotations map[string]string
	removed     bool // removed when it ends (--rm)
	service     bool // service container of pods (podman kube play), which only holds their unit

	// Facts about the run that was in the list at that time.

	of         run
	askedAt    time.Time
	policy     string // its restart policy, which `podman update` can change
	startedAt  time.Time
	finishedAt time.Time
	monitor    int // PID of its conmon; 0 if it did not run
}

// run identifies the latest run of a container in a list.
type run struct {
	state          runtime.ContainerState
	pid            int
	started, ended int64
}

func (c *container) run() run {
	latest := run{state: c.state(), started: c.StartedAt, ended: c.ExitedAt}
	if latest.state == runtime.Running {
		latest.pid = c.Pid
	}
	return latest
}

// startNoted bounds how long Podman takes to record a start. The end of a shorter run, which is the
// time of conmon's file, may be before its recorded start.
const startNoted = time.Minute

// times returns the start and end of the latest run of a container. Inspected times are exact. A
// list has no start, and its end has whole seconds. An end before the start belongs to an earlier
// run: Podman did not see the end of this run, as in a power cut.
func (f fact) times(c *container) (began, ended time.Time) {
	asked := f.of == c.run() && f.startedAt.Unix() == c.StartedAt
	ends := c.state() == runtime.Exited && c.ExitedAt > 0 && c.StartedAt-c.ExitedAt <= int64(startNoted/time.Second)
	switch {
	case asked && ends && f.finishedAt.Unix() == c.ExitedAt:
		return f.startedAt, f.finishedAt
	case ends:
		return time.Time{}, time.Unix(c.ExitedAt, 0)
	case asked:
		return f.startedAt, time.Time{}
	}
	return time.Time{}, time.Time{}
}

// facts has the facts about the containers of the last list.
type facts struct {
	mu   sync.Mutex
	byID map[string]fact
	hung map[string]time.Time // when a request was last not answered, by ID
}

func (f *facts) get(id string) (fact, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, there := f.byID[id]
	return known, there
}

// complete returns the facts about each container, and queries Podman for new containers and new
// runs. Facts that Podman does not return stay unknown until a later list, so that no single
// container makes a list fail. Containers whose last request was not answered come last: they may
// hang alone.
func (f *facts) complete(ctx context.Context, r *Runtime, list []*container) map[string]fact {
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	f.mu.Lock()
	before := f.hung
	f.mu.Unlock()
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *container) int { return before[a.ID].Compare(before[b.ID]) })
	answers, reported, hungAt := make([]fact, len(list)), make([]bool, len(list)), make([]time.Time, len(list))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(factsAtOnce)
	for i, c := range list {
		if answers[i], reported[i] = f.get(c.ID); reported[i] && answers[i].of == c.run() && time.Since(answers[i].askedAt) < reinspectAfter {
			continue
		}
		hungAt[i] = before[c.ID]
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil // a call that is not made does not count as hung
			}
			about, err := r.inspect(ctx, "get status of "+local.Named("container", c.name(), c.ID), c.ID)
			switch {
			case err == nil:
				answers[i], reported[i], hungAt[i] = about.fact(c.run()), true, time.Time{}
			case errors.Is(err, runtime.ErrUnavailable): // the other requests will fail, too
				hungAt[i] = time.Now()
				return err
			case !errors.Is(err, engine.ErrNotFound): // removed: it will not be in the next list
				r.log.Debug("cannot inspect container", "container", c.name(), "id", c.ID, "error", err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		r.log.Debug("stopped inspecting containers", "error", err)
	}
	known, hung := make(map[string]fact, len(list)), map[string]time.Time{}
	for i, c := range list {
		if !hungAt[i].IsZero() {
			hung[c.ID] = hungAt[i]
		}
		if reported[i] {
			known[c.ID] = answers[i]
		}
		if answers[i].of != c.run() {
			r.changes.note() // makes the next list request it again
		}
	}
	// Containers that are not in the list were removed.
	f.mu.Lock()
	f.byID, f.hung = known, hung
	f.mu.Unlock()
	return known
}

// inspected is Podman's description of one container.
type inspected struct {
	IsService    bool
	Dependencies []string
	State        struct {
		Status                string
		StartedAt, FinishedAt time.Time
		ConmonPid             int
	}
	Mounts     []struct{ Type, Name, Source, Driver string }
	HostConfig struct {
		RestartPolicy struct{ Name string }
		Devices       []struct{ PathOnHost string }
		VolumesFrom   []string
		AutoRemove    bool
	}
	Config struct {
		StopTimeout *int64          // seconds
		StopSignal  json.RawMessage // a number; since Podman 5 a name
		Annotations map[string]string
	}
}

// stopSignal returns the container's stop signal.
func (i inspected) stopSignal() string {
	switch signal := strings.Trim(string(i.Config.StopSignal), `"`); signal {
	case "", "null", "0": // unknown
		return "SIGTERM"
	default:
		return signal
	}
}

// inspect requests the description of one container.
func (r *Runtime) inspect(ctx context.Context, what, id string) (inspected, error) {
	var answer inspected
	err := r.get(ctx, "InspectContainer", what, "/containers/"+id+"/json", nil, &answer)
	if err == nil && answer.State.Status == "" {
		err = fmt.Errorf("%s: %w: no state in it", what, runtime.ErrInvalidAnswer)
	}
	return answer, err
}

// fact converts a description of the run of.
func (i inspected) fact(of run) fact {
	f := fact{
		needs: i.Dependencies, annotations: sanitize.Clean(i.Config.Annotations), service: i.IsService, removed: i.HostConfig.AutoRemove,
		of: of, askedAt: time.Now(), policy: cmp.Or(i.HostConfig.RestartPolicy.Name, policyNone), startedAt: i.State.StartedAt, finishedAt: i.State.FinishedAt,
		monitor: i.State.ConmonPid,
	}
	for _, from := range i.HostConfig.VolumesFrom { // "db:ro,cache", or one entry for each
		for text := range strings.FieldsFuncSeq(from, func(r rune) bool { return r == ',' || r == ';' }) {
			other, _, _ := strings.Cut(text, ":")
			f.volumes = append(f.volumes, other)
		}
	}
	if s := i.Config.StopTimeout; s != nil && *s >= 0 && time.Duration(*s)*time.Second != defaultStopTimeout {
		timeout := time.Duration(min(*s, never)) * time.Second
		f.stopTimeout = &timeout
	}
	return f
}
