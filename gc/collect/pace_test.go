package collect_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// manyContainers is a host with n dead containers, and 100 pods with one more each that is kept.
func manyContainers(t *testing.T, n int, callTime func(op runtimetest.Op, atOnce int) time.Duration) (*host, *collect.Containers) {
	t.Helper()
	h := newHost(t, runtimetest.Options{CallTime: callTime})
	h.fake.AddImage(runtimetest.ImageSpec{ID: "sha256:a"})
	const pods = 100
	for i := range pods {
		spec := runtimetest.PodSpec{ID: fmt.Sprintf("p%d", i), Name: fmt.Sprintf("p%d", i), Namespace: "default"}
		for j := range n/pods + 1 {
			at := time.Now().Add(-time.Duration(n-j) * time.Second)
			spec.Containers = append(spec.Containers, runtimetest.ContainerSpec{
				ID: fmt.Sprintf("c%d-%d", i, j), Name: "job", Image: "sha256:a", State: runtime.Exited, CreatedAt: at, FinishedAt: at,
			})
		}
		h.fake.RunPod(spec)
	}
	return h, h.containers()
}

// atOnce returns the maximum number of parallel calls, of those that began between two times.
func atOnce(calls []runtimetest.Call, from, to time.Time) int {
	type edge struct {
		at    time.Time
		delta int
	}
	var edges []edge
	for _, c := range calls {
		if !c.Start.Before(from) && c.Start.Before(to) {
			edges = append(edges, edge{c.Start, 1}, edge{c.End, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), a.delta-b.delta) })
	now, most := 0, 0
	for _, e := range edges {
		now += e.delta
		most = max(most, now)
	}
	return most
}

func TestManyDeadContainersGoAsTheRuntimeTakesIt(t *testing.T) {
	const (
		n    = 30_000
		each = 10 * time.Millisecond
	)
	tests := []struct {
		name     string
		callTime func(since time.Duration, atOnce int) time.Duration
		most     int // maximum of parallel calls
		within   time.Duration
	}{
		{
			name:     "a runtime with ease to spare",
			callTime: func(time.Duration, int) time.Duration { return each },
			most:     4, within: n * each / 3,
		},
		{
			name:     "a runtime that does one thing at a time",
			callTime: func(_ time.Duration, atOnce int) time.Duration { return time.Duration(atOnce) * each },
			most:     3, within: n * each * 5 / 4,
		},
		{
			name: "a runtime that chokes on more than two",
			callTime: func(_ time.Duration, atOnce int) time.Duration {
				if atOnce > 2 {
					return 20 * each
				}
				return each
			},
			most: 3, within: n * each * 2,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				h, containers := manyContainers(t, n, func(op runtimetest.Op, atOnce int) time.Duration {
					if op != runtimetest.RemoveContainer {
						return 0
					}
					return tt.callTime(time.Since(start), atOnce)
				})
				r, err := containers.Collect(t.Context(), gc.Options{}, nil)
				if err != nil || len(r.Removed) != n || len(r.Errors) > 0 {
					t.Fatalf("Collect() removed %d, %v, errors %.3q, ended %q, want %d", len(r.Removed), err, r.Errors, r.Ended, n)
				}
				calls := h.fake.Calls(runtimetest.RemoveContainer)
				if most := atOnce(calls, start, time.Now()); most > tt.most {
					t.Errorf("%d removals at once, want at most %d", most, tt.most)
				}
				t.Logf("%d containers in %v, at most %d at once", n, r.Duration.Round(time.Millisecond), atOnce(calls, start, time.Now()))
				if r.Duration.Duration > tt.within {
					t.Errorf("Collect() took %v, want at most %v", r.Duration.Duration, tt.within)
				}
			})
		})
	}
}

// For one minute, other work keeps the runtime busy, so that every call takes five times as long.
func TestCollectionsYieldToOtherWork(t *testing.T) {
	const each = 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		from, to := start.Add(20*time.Second), start.Add(80*time.Second)
		h, containers := manyContainers(t, 30_000, func(op runtimetest.Op, _ int) time.Duration {
			switch now := time.Now(); {
			case op != runtimetest.RemoveContainer:
				return 0
			case now.Before(from) || now.After(to):
				return each
			}
			return 5 * each
		})
		r, err := containers.Collect(t.Context(), gc.Options{}, nil)
		if err != nil || len(r.Removed) != 30_000 {
			t.Fatalf("Collect() removed %d, %v, ended %q, want 30000", len(r.Removed), err, r.Ended)
		}
		calls := h.fake.Calls(runtimetest.RemoveContainer)
		if most := atOnce(calls, start, from); most != 4 {
			t.Errorf("%d removals at once before others come, want 4", most)
		}
		// It takes two rounds to notice.
		noticed := from.Add(2 * time.Second)
		until := from.Add(10 * time.Second)
		if most := atOnce(calls, noticed, until); most != 1 {
			t.Errorf("%d removals at once while others keep the runtime busy, want 1", most)
		}
		var busy time.Duration
		for _, c := range calls {
			if !c.Start.Before(noticed) && c.Start.Before(until) {
				busy += c.End.Sub(c.Start)
			}
		}
		if share := busy.Seconds() / until.Sub(noticed).Seconds(); share > 0.6 {
			t.Errorf("removals take %.0f%% of the time while others keep the runtime busy, want about half", 100*share)
		}
		if most := atOnce(calls, to.Add(2*time.Second), to.Add(5*time.Second)); most != 4 {
			t.Errorf("%d removals at once after others are gone, want 4", most)
		}
	})
}

func TestManyRemovalsEndWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := manyContainers(t, 30_000, func(op runtimetest.Op, _ int) time.Duration {
			if op == runtimetest.RemoveContainer {
				return time.Second
			}
			return 0
		})
		options := h.options()
		options.RunLimit = time.Minute
		containers, err := collect.NewContainers(gc.DefaultPolicy().Containers, options)
		if err != nil {
			t.Fatal(err)
		}
		r, err := containers.Collect(t.Context(), gc.Options{}, nil)
		if err != nil || r.Ended != "time limit reached" || len(r.Removed) < 100 || len(r.Removed) > 240 || r.Duration.Duration > 70*time.Second {
			t.Errorf("Collect() removed %d in %v, %v, ended %q, want some 200 in a minute", len(r.Removed), r.Duration, err, r.Ended)
		}
	})
}

// paced is a runtime whose calls take a configurable time.
type paced struct {
	*runtimetest.Fake
	container func(runtime.Container) (time.Duration, error)
	pod       time.Duration
}

func (p paced) RemoveContainer(ctx context.Context, c runtime.Container) error {
	took, err := p.container(c)
	if time.Sleep(took); err != nil {
		return err
	}
	return p.Fake.RemoveContainer(ctx, c)
}

func (p paced) RemovePod(ctx context.Context, pod runtime.Pod) error {
	time.Sleep(p.pod)
	return p.Fake.RemovePod(ctx, pod)
}

// A removal is slow compared with others of its kind, and not with other kinds, rejected or failed
// ones.
func TestOnlyRemovalsOfAKindSetThePace(t *testing.T) {
	const (
		n    = 400
		each = 60 * time.Millisecond
	)
	tests := []struct {
		name    string
		runtime paced
		refused int
		failed  int // number of these with an error
		within  time.Duration
	}{
		{
			name: "sandboxes, which take longer than containers", within: n * (each + each/6) / 2,
			runtime: paced{pod: each, container: func(runtime.Container) (time.Duration, error) { return each / 6, nil }},
		},
		{
			name: "containers after some that the runtime fails to remove at once", refused: 8, failed: 8, within: n * each / 2,
			runtime: paced{container: func(c runtime.Container) (time.Duration, error) {
				if c.Name == "refused" {
					return time.Millisecond, errors.New("operation not permitted")
				}
				return each, nil
			}},
		},
		{
			name: "containers after some that the runtime refuses", refused: 8, within: n * each / 2,
			runtime: paced{container: func(c runtime.Container) (time.Duration, error) {
				if c.Name == "refused" {
					return time.Millisecond, runtime.ErrInUse
				}
				return each, nil
			}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				h.fake.AddImage(runtimetest.ImageSpec{ID: "sha256:a"})
				for i := range n {
					c := runtimetest.ContainerSpec{Name: "job", Image: "sha256:a", State: runtime.Exited}
					if i < tt.refused {
						c.Name = "refused"
					}
					pod := h.fake.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{c}})
					if err := h.fake.StopPod(t.Context(), pod); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second) // longest dead first
				}
				time.Sleep(2 * time.Hour)
				tt.runtime.Fake = h.fake
				h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{tt.runtime} }
				r, err := h.containers().Collect(t.Context(), gc.Options{}, nil)
				if got := r.Count(runs.KindContainer); err != nil || got != n-tt.refused || r.Count(runs.KindPod) != got || len(r.Errors) != tt.failed {
					t.Fatalf("Collect() removed %d containers, %v, errors %.3q, want %d and their pods", got, err, r.Errors, n-tt.refused)
				}
				if r.Duration.Duration > tt.within {
					t.Errorf("Collect() took %v, want at most %v", r.Duration.Duration, tt.within)
				}
			})
		})
	}
}
