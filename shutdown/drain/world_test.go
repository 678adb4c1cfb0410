package drain_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// world is a runtime with pods, for a drain in a bubble.
type world struct {
	t       *testing.T
	fake    *runtimetest.Fake
	roster  *drain.Roster
	options drain.Options
	began   time.Time

	mu        sync.Mutex
	published []*journal.Record
}

// inWorld runs the test in a bubble, with the default phases.
func inWorld(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, fake: runtimetest.NewFake(runtimetest.Options{CallTimeout: time.Hour}), began: time.Now()}
		w.fake.AddImage(runtimetest.ImageSpec{ID: "image"})
		w.roster = &drain.Roster{Runtime: w.fake}
		w.options = drain.Options{
			Log: slog.New(slog.DiscardHandler), Roster: w.roster, Phases: plan.Defaults(), Start: time.Now(),
			Record: &journal.Record{BootID: "boot", StartedAt: time.Now()},
			Publish: func(r *journal.Record) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.published = append(w.published, r)
			},
		}
		test(t, w)
	})
}

// pod adds a pod. Its containers have its name and a number.
func (w *world) pod(name string, priority int32, containers ...runtimetest.ContainerSpec) {
	if len(containers) == 0 {
		containers = []runtimetest.ContainerSpec{{}}
	}
	for i := range containers {
		c := &containers[i]
		c.Image, c.ID, c.Name = "image", fmt.Sprint(name, i), fmt.Sprint("c", i)
	}
	w.fake.RunPod(runtimetest.PodSpec{
		ID: name, Name: name, Namespace: "ns", Containers: containers,
		Labels: map[string]string{runtime.LabelPriority: fmt.Sprint(priority)},
	})
}

func grace(d string) map[string]string { return map[string]string{runtime.LabelGracePeriod: d} }

// drain returns a drain that checks each change of state against the transition table.
func (w *world) drain() *drain.Drain {
	d := drain.New(w.options)
	drain.Observe(d, func(from, to drain.State) {
		if !slices.ContainsFunc(drain.Transitions(), func(t drain.Transition) bool { return t.From == from && t.To == to }) {
			w.t.Errorf("a container went from %v to %v, which is not in the table", from, to)
		}
	})
	return d
}

// run drains, and returns the record when all sandboxes are torn down.
func (w *world) run(ctx context.Context) (*journal.Record, time.Duration) {
	w.t.Helper()
	d := w.drain()
	began := time.Now()
	d.Run(ctx)
	took := time.Since(began)
	if now := time.Now(); now.After(d.Deadline()) {
		w.t.Errorf("Run() ended %v after its deadline", now.Sub(d.Deadline()))
	}
	<-d.Idle()
	return d.Record(), took
}

// outcomes returns the outcomes in the record, by pod.
func outcomes(r *journal.Record) map[string]journal.Outcome {
	m := map[string]journal.Outcome{}
	for _, p := range r.Pods {
		m[p.Name] = p.Outcome
	}
	return m
}

func (w *world) expect(r *journal.Record, graceful bool, want map[string]journal.Outcome) {
	w.t.Helper()
	got := outcomes(r)
	same := len(got) == len(want)
	for name, o := range want {
		same = same && got[name] == o
	}
	if !same || r.Graceful != graceful {
		w.t.Errorf("Run() = graceful %v, %v, want %v, %v\n%+v", r.Graceful, got, graceful, want, r)
	}
}

func (w *world) expectTook(got, want time.Duration) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("Run() took %v, want %v", got, want)
	}
}

// signals returns the signals that a container got, with the time since the start.
func (w *world) signals(container string) string {
	var all []string
	for _, s := range w.fake.Signals() {
		if s.ContainerID == container {
			all = append(all, fmt.Sprint(s.Name, "@", s.At.Sub(w.began)))
		}
	}
	return strings.Join(all, " ")
}

// asked returns how often an operation was called for a container or pod.
func (w *world) asked(op runtimetest.Op, subject string) (times int) {
	for _, c := range w.fake.Calls(op) {
		if c.Subject == subject {
			times++
		}
	}
	return times
}

func (w *world) expectSignals(container, want string) {
	w.t.Helper()
	if got := w.signals(container); got != want {
		w.t.Errorf("container %s got %q, want %q", container, got, want)
	}
}
