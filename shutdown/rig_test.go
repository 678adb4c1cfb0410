package shutdown_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// rig is a host in a bubble: a login manager, a runtime, a control plane, and a guard.
type rig struct {
	t       *testing.T
	logind  *logind
	fake    *runtimetest.Fake
	options shutdown.Options
	path    string
	boot    string
	began   time.Time

	guard *shutdown.Guard
	stop  func()

	mu      sync.Mutex
	changes []shutdown.Change
	reports []report
	report  func(ctx context.Context) error // nil answers at once
}

type report struct {
	at     time.Time
	status shutdown.Status
	held   int // number of held locks
}

func onHost(t *testing.T, test func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			t: t, logind: newLogind(t), fake: runtimetest.NewFake(runtimetest.Options{CallTimeout: time.Hour}),
			path: filepath.Join(t.TempDir(), "shutdown.json"), boot: "one", began: time.Now(),
		}
		r.fake.AddImage(runtimetest.ImageSpec{ID: "image"})
		r.options = shutdown.Options{
			Phases: plan.Defaults(), Runtime: r.fake, Log: slog.New(slog.DiscardHandler), Inhibitor: r.logind, Reporter: r,
			Notify: func(c shutdown.Change) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.changes = append(r.changes, c)
			},
		}
		test(t, r)
		if r.stop != nil {
			r.stop()
		}
		r.checkTransitions()
	})
}

// ReportShutdown records reports to the control plane.
func (r *rig) ReportShutdown(ctx context.Context, status shutdown.Status) error {
	held := r.logind.held()
	r.mu.Lock()
	answer := r.report
	r.mu.Unlock()
	if answer != nil {
		if err := answer(ctx); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports = append(r.reports, report{time.Now(), status, held})
	return nil
}

// build creates the guard of a new agent, in the same boot or another one, without starting it.
func (r *rig) build() {
	r.t.Helper()
	r.options.Journal = journal.Open(r.path, r.boot, r.options.Log)
	guard, err := shutdown.New(r.options)
	if err != nil {
		r.t.Fatal(err)
	}
	r.guard = guard
}

// start builds and runs a guard.
func (r *rig) start() {
	r.t.Helper()
	r.build()
	guard := r.guard
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- guard.Run(ctx) }()
	r.stop = func() {
		r.t.Helper()
		cancel()
		if err := <-done; err == nil {
			r.t.Errorf("Run() = nil, want why it ended")
		}
		r.stop = nil
	}
	synctest.Wait()
}

// pod adds a pod with one container.
func (r *rig) pod(name string, priority int32, c runtimetest.ContainerSpec) {
	c.ID, c.Name, c.Image = name+"-c", "c", "image"
	r.fake.RunPod(runtimetest.PodSpec{
		ID: name, Name: name, Namespace: "ns", Containers: []runtimetest.ContainerSpec{c},
		Labels: map[string]string{runtime.LabelPriority: fmt.Sprint(priority)},
	})
}

// usual adds a regular and a critical pod, whose stops take two seconds each.
func (r *rig) usual() {
	r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 2 * time.Second})
	r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: 2 * time.Second})
}

// running returns a list from before the first stop.
func (r *rig) running() []runtime.Pod {
	r.t.Helper()
	pods, err := r.fake.Pods(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range pods {
		for j := range pods[i].Containers {
			pods[i].Containers[j].State = runtime.Running
		}
	}
	return pods
}

func (r *rig) expect(state shutdown.State, locks int) {
	r.t.Helper()
	synctest.Wait()
	if got := r.guard.Status(); got.State != state || r.logind.held() != locks {
		r.t.Errorf("Status() = %v (%s) with %d locks, want %v with %d", got.State, got.Reason, r.logind.held(), state, locks)
	}
}

func (r *rig) expectSignals(pod, want string) {
	r.t.Helper()
	var all []string
	for _, s := range r.fake.Signals() {
		if s.ContainerID == pod+"-c" {
			all = append(all, fmt.Sprint(s.Name, "@", s.At.Sub(r.began)))
		}
	}
	if got := strings.Join(all, " "); got != want {
		r.t.Errorf("pod %s got %q, want %q", pod, got, want)
	}
}

func (r *rig) expectReleased(after time.Duration) {
	r.t.Helper()
	select {
	case at := <-r.logind.released:
		if got := at.Sub(r.began); got != after {
			r.t.Errorf("the lock was released after %v, want %v", got, after)
		}
	default:
		r.t.Errorf("the lock was not released, want it after %v", after)
	}
}

func (r *rig) states() []shutdown.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var states []shutdown.State
	for _, c := range r.changes {
		states = append(states, c.To)
	}
	return states
}

func (r *rig) reported() []report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]report(nil), r.reports...)
}

// checkTransitions checks the observed changes against the table.
func (r *rig) checkTransitions() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	allowed := map[[2]shutdown.State]bool{}
	for _, t := range shutdown.Transitions() {
		allowed[[2]shutdown.State{t.From, t.To}] = true
	}
	state := shutdown.Disarmed
	for _, c := range r.changes {
		if c.From == shutdown.Armed && c.To == c.From && state == c.From {
			continue // only the delay changed
		}
		if c.From == shutdown.Disarmed && state != c.From {
			state = c.From // a new process
		}
		if c.From != state || !allowed[[2]shutdown.State{c.From, c.To}] || c.Status.State != c.To || c.Status.Reason == "" {
			r.t.Errorf("after %v observed %v to %v (%s), which is not in the table", state, c.From, c.To, c.Status.Reason)
		}
		if c.To == shutdown.Draining && c.Status.Current == nil {
			r.t.Error("observed Draining without the drain's record, which has the start")
		}
		state = c.To
	}
}
