package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/systemd"
)

// left writes a journal as a boot left it, and returns its path.
func left(t *testing.T, content map[string]any) string {
	t.Helper()
	content["version"] = 1
	data, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "shutdown.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// reasons are those of the Events that a desk's control plane has, told of one
// prefix, with their messages.
func (d *desk) reasons(t *testing.T, prefix string) []string {
	t.Helper()
	events, err := d.client.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range events {
		if strings.HasPrefix(e.Reason, prefix) {
			text := e.Type + " " + e.Reason + ": " + e.Message
			if e.Count > 1 {
				text += fmt.Sprintf(" (%d times)", e.Count)
			}
			list = append(list, text)
		}
	}
	return list
}

// publishing runs the recorder until the test ends.
func (d *desk) publishing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.recorder.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func TestAnEventTellsOnceHowTheLastBootEnded(t *testing.T) {
	began := time.Now().Add(-time.Minute)
	pods := func(outcomes ...journal.Outcome) []journal.PodRecord {
		var list []journal.PodRecord
		for i, o := range outcomes {
			list = append(list, journal.PodRecord{Runtime: "containerd", ID: string(rune('a' + i)), Name: string(rune('a' + i)), Outcome: o})
		}
		return list
	}
	for name, c := range map[string]struct {
		content map[string]any
		want    string
	}{
		"a reboot that went well": {
			map[string]any{"bootID": "one", "record": journal.Record{BootID: "one", Trigger: journal.TriggerShutdown, Kind: "reboot", StartedAt: began, FinishedAt: began.Add(time.Second), Graceful: true, Pods: pods(journal.Stopped, journal.Killed, journal.Stopped)}},
			"Normal LastShutdownGraceful: the last shutdown (reboot) was graceful: 3 pods: 2 stopped, 1 killed at the end of their grace",
		},
		"a forced reboot": {
			map[string]any{"bootID": "one", "watch": map[string]any{"pods": []journal.Ref{{ID: "a", Name: "a"}}}},
			"Warning LastShutdownNotGraceful: the last shutdown was not graceful: the host went down without a drain: 1 pod cut off",
		},
		"a drain that was cut off": {
			map[string]any{"bootID": "one", "record": journal.Record{BootID: "one", Kind: "poweroff", StartedAt: began, Pods: pods(journal.Stopped, "")}},
			"Warning LastShutdownNotGraceful: the last shutdown (poweroff) was not graceful: the host went down in the middle of the drain: 2 pods: 1 stopped, 1 cut off",
		},
		"a host without pods": {
			map[string]any{"bootID": "one", "watch": map[string]any{"pods": []journal.Ref{}}},
			"Warning LastShutdownNotGraceful: the last shutdown was not graceful: the host went down without a drain: no pods seen",
		},
		"the same boot": {map[string]any{"bootID": "two", "watch": map[string]any{"pods": []journal.Ref{{ID: "a"}}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := left(t, c.content)
			bubble(t, func(t *testing.T, d *desk) {
				d.publishing(t)
				for start := range 3 {
					a := d.agent()
					a.journal = journal.Open(path, "two", silent())
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					a.tellOfLastBoot(ctx)
					cancel()
					if got := strings.Join(d.reasons(t, "LastShutdown"), "|"); got != c.want {
						t.Errorf("after start %d Events tell %q, want %q", start+1, got, c.want)
					}
				}
			})
		})
	}
}

func TestTheEndOfTheLastBootIsToldWhenItCanBe(t *testing.T) {
	path := left(t, map[string]any{"bootID": "one", "watch": map[string]any{"pods": []journal.Ref{{ID: "a"}}}})
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, path); err != nil { // which cannot be read
		t.Fatal(err)
	}
	bubble(t, func(t *testing.T, d *desk) {
		d.publishing(t)
		d.away()
		a := d.agent()
		a.journal = journal.Open(path, "two", silent())
		ctx, cancel := context.WithCancel(t.Context())
		done, written := make(chan struct{}), make(chan struct{})
		go func() { defer close(done); a.tellOfLastBoot(ctx) }()
		go func() { defer close(written); a.journal.Run(ctx) }()
		time.Sleep(time.Hour)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		a.journal.Mark([]journal.Ref{}) // has it read before it is written over
		time.Sleep(time.Hour)
		if got := d.reasons(t, "LastShutdown"); len(got) != 0 {
			t.Errorf("without a control plane Events tell %q", got)
		}
		if values, _ := d.kept.Load(); values[keyTold] != nil {
			t.Error("it counts as told although nobody has heard")
		}
		d.client.Heal()
		time.Sleep(time.Hour)
		if got := d.reasons(t, "LastShutdown"); len(got) != 1 {
			t.Errorf("when both are back Events tell %q, want it once", got)
		}
		cancel()
		<-done
		<-written
	})
}

func TestTheEndOfTheLastBootIsToldOnceAlsoIfTheControlPlaneIsAwayForLong(t *testing.T) {
	path := left(t, map[string]any{"bootID": "one", "watch": map[string]any{"pods": []journal.Ref{{ID: "a"}}}})
	bubble(t, func(t *testing.T, d *desk) {
		d.away()
		for range 3 { // starts in vain
			a := d.again(t, "two").agent()
			a.restoreEvents()
			a.journal = journal.Open(path, "two", silent())
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			a.tellOfLastBoot(ctx)
			cancel()
			a.keepEvents()
		}
		d.client.Heal()
		last := d.again(t, "two")
		last.publishing(t)
		a := last.agent()
		a.restoreEvents()
		a.journal = journal.Open(path, "two", silent())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		a.tellOfLastBoot(ctx)
		synctest.Wait()
		if got := d.reasons(t, "LastShutdown"); len(got) != 1 {
			t.Errorf("Events = %q, want one", got)
		}
	})
}

func TestPodsOfTheLastShutdownAreProtected(t *testing.T) {
	now := time.Now()
	a := &Agent{journal: journal.Open(left(t, map[string]any{"bootID": "one", "record": journal.Record{
		BootID: "one", StartedAt: now, FinishedAt: now, Graceful: true,
		Pods: []journal.PodRecord{{Runtime: "containerd", ID: "a", UID: "u", Outcome: journal.Stopped}, {Runtime: "podman", ID: "b", Outcome: journal.Left}},
	}}), "two", silent())}
	got, uids := a.protectedPods()
	if len(uids) != 2 || uids["u"] == "" || uids["b"] == "" {
		t.Errorf("protectedPods() = UIDs %v, want that of the orchestrator, and the ID where there is none", uids)
	}
	if len(got) != 2 || got[gc.PodKey{Runtime: "containerd", ID: "a"}] == "" || got[gc.PodKey{Runtime: "podman", ID: "b"}] == "" {
		t.Errorf("protectedPods() = %v, want both pods", got)
	}
	long := now.Add(-25 * time.Hour)
	a.journal = journal.Open(left(t, map[string]any{"bootID": "one", "record": journal.Record{
		BootID: "one", StartedAt: long, FinishedAt: long, Pods: []journal.PodRecord{{Runtime: "containerd", ID: "a"}},
	}}), "one", silent())
	if got, _ := a.protectedPods(); len(got) != 0 {
		t.Errorf("protectedPods() a day later = %v, want none", got)
	}
	a.journal = journal.Open(left(t, map[string]any{"bootID": "one", "record": journal.Record{
		BootID: "one", StartedAt: now, CancelledAt: now,
		Pods: []journal.PodRecord{{ID: "a", Outcome: journal.Stopped}, {ID: "b", Outcome: journal.Skipped}, {ID: "c", Outcome: journal.Left}},
	}}), "one", silent())
	if got, _ := a.protectedPods(); len(got) != 1 || !strings.Contains(got[gc.PodKey{ID: "a"}], "cancelled") {
		t.Errorf("protectedPods() after a shutdown that was cancelled = %v, want what it stopped, and not what runs on", got)
	}
	if up := uptime(); up <= 0 {
		t.Errorf("uptime() = %v, want what has passed since the boot", up)
	}
}

// told is an agent whose guard runs, and tells the desk's control plane.
func (d *desk) told(t *testing.T, pods ...runtimetest.ContainerSpec) (*Agent, *runtimetest.Fake) {
	t.Helper()
	fake := runtimetest.NewFake(runtimetest.Options{CallTimeout: time.Hour})
	fake.AddImage(runtimetest.ImageSpec{ID: "image"})
	for _, c := range pods {
		c.ID, c.Image = c.Name+"-c", "image"
		fake.RunPod(runtimetest.PodSpec{ID: c.Name, Name: c.Name, Namespace: "ns", Labels: c.Labels, Containers: []runtimetest.ContainerSpec{c}})
	}
	a := d.agent()
	a.notifier = &systemd.Notifier{}
	a.journal = journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", silent())
	var err error
	a.guard, err = shutdown.New(shutdown.Options{Phases: plan.Defaults(), Runtime: fake, Journal: a.journal, Log: silent(), Notify: a.shutdownChanged})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.guard.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return a, fake
}

func TestAShutdownIsToldOnceHoweverOftenTheServiceStops(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.publishing(t)
		a, fake := d.told(t, runtimetest.ContainerSpec{Name: "web", EndsAfter: time.Second})
		want := []string{"Normal Shutdown: pods are being stopped: the service manager is going down", "Normal ShutdownReleased: 1 pod stopped in 1s"}
		for range 3 {
			if _, err := a.guard.Drain(t.Context(), journal.TriggerServiceStop); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := d.reasons(t, "Shutdown"); !slices.Equal(got, want) {
				t.Errorf("Events = %q, want %q", got, want)
			}
		}
		// What came since, and is stopped now, is news.
		fake.RunPod(runtimetest.PodSpec{ID: "late", Name: "late", Containers: []runtimetest.ContainerSpec{{ID: "late-c", Name: "c", Image: "image"}}})
		if _, err := a.guard.Drain(t.Context(), journal.TriggerServiceStop); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := d.reasons(t, "ShutdownReleased"); len(got) != 2 || !strings.Contains(got[1], "2 pods stopped") {
			t.Errorf("Events = %q, want the second pod told of", got)
		}
	})
}
