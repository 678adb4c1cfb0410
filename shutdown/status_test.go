package shutdown_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func TestNewRefuses(t *testing.T) {
	full := shutdown.Options{
		Runtime: runtimetest.NewFake(runtimetest.Options{}), Log: slog.New(slog.DiscardHandler),
		Journal: journal.Open(filepath.Join(t.TempDir(), "j"), "one", slog.New(slog.DiscardHandler)),
	}
	if _, err := shutdown.New(full); err != nil {
		t.Errorf("New() = %v, want nil", err)
	}
	for name, spoil := range map[string]func(*shutdown.Options){
		"no runtime": func(o *shutdown.Options) { o.Runtime = nil },
		"no journal": func(o *shutdown.Options) { o.Journal = nil },
		"no log":     func(o *shutdown.Options) { o.Log = nil },
		"odd phases": func(o *shutdown.Options) { o.Phases = []plan.PhaseSpec{{Priority: 1}, {Priority: 0}} },
	} {
		options := full
		spoil(&options)
		if _, err := shutdown.New(options); err == nil {
			t.Errorf("New() with %s = nil, want an error", name)
		}
	}
}

func TestStatusAsJSON(t *testing.T) {
	data, err := json.Marshal(shutdown.Status{State: shutdown.Armed})
	want := `{"state":"Armed","reason":"","gracePeriod":"0s","gracePeriodCriticalPods":"0s","inhibitDelayMax":"0s","inhibitDelaySource":"","last":null}`
	if err != nil || string(data) != want {
		t.Errorf("Marshal() = %s, %v, want %s", data, err, want)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	data, err = json.Marshal(shutdown.Status{Last: &journal.Record{BootID: "b", Trigger: journal.TriggerShutdown, StartedAt: at, FinishedAt: at, Graceful: true, Pods: []journal.PodRecord{{Name: "web", Outcome: journal.Killed, StartedAt: at}}}})
	want = `"last":{"bootID":"b","trigger":"shutdown","startedAt":"2026-01-02T03:04:05Z","finishedAt":"2026-01-02T03:04:05Z","graceful":true,` +
		`"pods":[{"runtime":"","id":"","namespace":"","name":"web","phase":"","grace":"0s","startedAt":"2026-01-02T03:04:05Z","outcome":"killed"}]}}`
	if err != nil || !strings.HasSuffix(string(data), want) {
		t.Errorf("Marshal() = %s, %v, want it to end in %s", data, err, want)
	}
	var back shutdown.Status
	if err := json.Unmarshal([]byte(`{"state":"Released"}`), &back); err != nil || back.State != shutdown.Released {
		t.Errorf("Unmarshal() = %v, %v, want Released", back.State, err)
	}
}

func TestTransitionsNameEachStateAndNoneTwice(t *testing.T) {
	seen := map[[2]shutdown.State]bool{}
	reached := map[shutdown.State]bool{shutdown.Disarmed: true}
	for range 5 {
		for _, edge := range shutdown.Transitions() {
			if reached[edge.From] {
				reached[edge.To] = true
			}
		}
	}
	for _, edge := range shutdown.Transitions() {
		if seen[[2]shutdown.State{edge.From, edge.To}] || edge.When == "" || edge.From == edge.To {
			t.Errorf("Transitions() has %v to %v twice, or without a reason", edge.From, edge.To)
		}
		seen[[2]shutdown.State{edge.From, edge.To}] = true
	}
	want := map[shutdown.State]bool{shutdown.Disarmed: true, shutdown.Armed: true, shutdown.Draining: true, shutdown.Released: true, shutdown.Delegated: true}
	if !reflect.DeepEqual(reached, want) {
		t.Errorf("Transitions() reach %v, want %v", reached, want)
	}
	if got := shutdown.State(99).String(); got != "Unknown" {
		t.Errorf("State(99).String() = %q, want Unknown", got)
	}
}

func TestEveryTransitionHappens(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		var owner atomic.Bool
		r.options.Delegated = func(context.Context) (string, bool) { return "kubelet", owner.Load() }
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.start() // Armed
		settle := func() { time.Sleep(3 * time.Minute) }
		steps := []func(){
			func() { r.logind.loseBus() }, // Disarmed, Armed
			func() { r.logind.shutdown(""); time.Sleep(time.Second); r.logind.cancel() }, // Draining, Armed
			func() { r.logind.shutdown("") },                                             // Draining, Released
			func() { r.logind.shutdown("") },                                             // Draining, Released
			func() { r.logind.cancel() },                                                 // Disarmed, Armed
			func() { owner.Store(true); r.logind.loseBus() },                             // Disarmed, Delegated
			func() { owner.Store(false) },                                                // Disarmed, Armed
			func() { owner.Store(true); r.logind.restart(0) },                            // Disarmed, Delegated
			func() { owner.Store(false) },                                                // Disarmed, Armed
		}
		for _, step := range steps {
			step()
			settle()
		}
		// Directly from Armed to Delegated: the owner is checked after a cancellation.
		r.pod("web2", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.logind.shutdown("")
		time.Sleep(time.Second)
		owner.Store(true)
		r.logind.cancel()
		settle()
		r.expect(shutdown.Delegated, 0)
		// Without a lock: a shutdown is found in progress, and cancelled.
		owner.Store(false)
		r.logind.change(func() { r.logind.preparing = true })
		for range 60 {
			if time.Sleep(time.Second); r.guard.Status().State == shutdown.Draining {
				break
			}
		}
		r.expect(shutdown.Draining, 0)
		r.logind.cancel()
		settle()
		r.expect(shutdown.Armed, 1)

		happened := map[[2]shutdown.State]bool{}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, c := range r.changes {
			happened[[2]shutdown.State{c.From, c.To}] = true
		}
		for _, edge := range shutdown.Transitions() {
			if !happened[[2]shutdown.State{edge.From, edge.To}] {
				t.Errorf("%v to %v never happened", edge.From, edge.To)
			}
		}
	})
}
