package backend

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// short grants 20 s, but the guard has not read that yet.
type short struct{}

func (short) MaxDelay(context.Context) (time.Duration, error) { return 20 * time.Second, nil }
func (short) RaiseMaxDelay(context.Context, time.Duration) (time.Duration, error) {
	return 20 * time.Second, nil
}
func (short) Inhibit(context.Context, string) (io.Closer, error) { return io.NopCloser(nil), nil }
func (short) Preparing(context.Context) (bool, error)            { return false, nil }
func (short) Watch(ctx context.Context, _ chan<- shutdown.Event) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestPodsHaveTheGraceOfTheShutdownPlan(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	fake := runtimetest.NewFake(runtimetest.Options{})
	fake.AddImage(runtimetest.ImageSpec{ID: "image"})
	for name, unit := range map[string]string{"web": "", "db": "db.service", "app": "app.service"} {
		fake.RunPod(runtimetest.PodSpec{ID: name, Name: name, Containers: []runtimetest.ContainerSpec{{ID: name + "-c", Name: "c", Image: "image", Unit: unit}}})
	}
	runtimes, err := discovery.New(discovery.Options{Observe: func(string, string, time.Duration, error) {}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := runtimes.Set().Add(fake); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	policies, err := open.NewPolicies(cfg, "node-a", "")
	if err != nil {
		t.Fatal(err)
	}
	guard, err := shutdown.New(shutdown.Options{
		Phases: policies.Phases, Rules: policies.Rules, Runtime: runtimes.Set(), Log: log, Inhibitor: short{},
		Journal: journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", log),
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &Workloads{Runtimes: runtimes, Guard: guard, Settings: settings.New(cfg, policies, settings.Source{})}
	planned, err := b.ShutdownPlan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]plan.PlannedPod{}
	for _, phase := range planned.Phases {
		for _, p := range phase.Pods {
			want[p.Name] = p
		}
	}
	list, err := b.Pods(t.Context())
	if err != nil || len(list.Pods) != 3 || len(want) != 3 {
		t.Fatalf("Pods() = %+v, %v, and the plan has %v, want three pods in both", list, err, want)
	}
	for _, p := range list.Pods {
		if p.Grace != want[p.Name].Grace || p.Grace.Duration >= 20*time.Second {
			t.Errorf("pod %s has a grace period of %v, want %v as in the plan, since logind grants less than the phases take", p.Name, p.Grace, want[p.Name].Grace)
		}
	}
}
