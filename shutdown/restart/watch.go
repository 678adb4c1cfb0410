package restart

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
)

// hostPoll is how often the state of the host is read while containers wait for it.
const hostPoll = time.Second

// needsAtOnce is the maximum number of containers whose dependencies are read in parallel.
const needsAtOnce = 16

// pendingUnitsBound bounds a request to systemd.
const pendingUnitsBound = 2 * time.Second

// need is the dependencies of a container on the host.
type need struct {
	runtime.StartNeeds
	seen string // picture of its paths at the last attempt of this process; empty before
}

// watched is what containers wait for, as of the last pass.
type watched struct {
	units    []string
	coming   []PendingUnit
	pictures map[pending]string
}

// queued reports whether systemd has start jobs for any of it.
func (w watched) queued() bool {
	return slices.ContainsFunc(w.coming, func(c PendingUnit) bool { return c.Queued })
}

// readHost adds the dependencies on the host to the facts. It reads those of containers that are
// due or tried again, even if they wait for other containers.
func (r *Restarter) readHost(ctx context.Context, f *Facts) {
	needs, unread := map[pending]need{}, map[pending]runtime.Container{}
	for _, d := range f.judgeAll(time.Now()) {
		if d.Action != Start && d.Due.IsZero() {
			continue
		}
		id := pendingFor(d.Restart)
		if n, known := r.needs[id]; known {
			needs[id] = n
		} else {
			unread[id] = d.Container
		}
	}
	unresolved := r.readNeeds(ctx, unread)
	maps.Copy(needs, unresolved)
	var now watched
	for _, n := range needs {
		now.units = append(now.units, n.Units...)
	}
	resolved := r.host.resolve(ctx, unresolved)
	for id, paths := range resolved {
		n := needs[id]
		n.Paths = paths
		needs[id] = n
	}
	slices.Sort(now.units)
	now.units = slices.Compact(now.units)
	var err error
	if len(needs) > 0 {
		if now.coming, err = r.coming(ctx, now.units); err != nil {
			r.log.Debug("cannot list queued start jobs of systemd", "error", err)
		}
	}
	now.pictures = r.host.pictures(ctx, needs)
	r.needs, r.watched = maps.Clone(needs), now
	for id := range unresolved {
		if _, known := resolved[id]; !known {
			delete(r.needs, id) // the next pass reads its paths again
		}
	}
	known := r.needs
	f.Host = &HostFacts{PendingUnits: now.coming, NoAnswer: err != nil, Needs: func(o journal.Restart) (runtime.StartNeeds, bool) {
		_, known := known[pendingFor(o)]
		return needs[pendingFor(o)].StartNeeds, known
	}}
	f.Changed = func(o journal.Restart) bool {
		n := needs[pendingFor(o)]
		return n.seen != "" && differs(n.seen, now.pictures[pendingFor(o)])
	}
}

// readNeeds reads dependencies from the runtimes, and returns those that it got in time. Each container
// has a share of the time: a runtime may hang, and containers may have many volumes.
func (r *Restarter) readNeeds(ctx context.Context, of map[pending]runtime.Container) map[pending]need {
	rounds := (len(of) + needsAtOnce - 1) / needsAtOnce
	var mu sync.Mutex
	got := map[pending]need{}
	var group errgroup.Group
	group.SetLimit(needsAtOnce)
	for id, c := range of {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, listBound/time.Duration(rounds))
			defer cancel()
			n, err := r.o.Set.StartNeeds(ctx, c)
			if err != nil {
				r.log.Debug("cannot read dependencies of container", "container", c.Name, "id", c.ID, "error", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			got[id] = need{StartNeeds: n}
			return nil
		})
	}
	_ = group.Wait() // no read returns an error
	return got
}

// coming queries systemd, if there is one.
func (r *Restarter) coming(ctx context.Context, units []string) ([]PendingUnit, error) {
	if r.o.PendingUnits == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pendingUnitsBound)
	defer cancel()
	return r.o.PendingUnits(ctx, units...)
}

// hostChanged reports whether anything that containers wait for has changed since the last pass.
func (r *Restarter) hostChanged(ctx context.Context) bool {
	w := r.watched
	for id, picture := range r.host.pictures(ctx, r.needs) {
		if differs(w.pictures[id], picture) {
			return true
		}
	}
	if !w.queued() {
		return false
	}
	coming, err := r.coming(ctx, w.units)
	return err == nil && !slices.Equal(coming, w.coming)
}

// differs reports whether a picture has changed. An empty one is unknown, so it does not count.
func differs(before, now string) bool { return now != "" && now != before }

// noteTry records the picture of a container's paths before an attempt.
func (r *Restarter) noteTry(d Decision) {
	if n, known := r.needs[pendingFor(d.Restart)]; known {
		n.seen = r.watched.pictures[pendingFor(d.Restart)]
		r.needs[pendingFor(d.Restart)] = n
	}
}

// noteWait records and logs what a container waits for.
func (r *Restarter) noteWait(before []journal.Restart, now journal.Restart) {
	i := slices.IndexFunc(before, func(b journal.Restart) bool { return pendingFor(b) == pendingFor(now) })
	if i < 0 || before[i].Reason == now.Reason {
		return
	}
	if r.o.Journal.NoteRestart(now) && now.Reason != "" {
		r.log.Info("container not started yet", "container", now.Name, "id", now.ID, "runtime", now.Runtime, "reason", now.Reason)
	}
}
