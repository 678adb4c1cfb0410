package report

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status/reboots"
)

// left writes a journal of an earlier boot, and returns its path.
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

// bootEvents returns a BootEvents like that of an agent that starts.
func (d *desk) bootEvents(j *journal.Journal) *BootEvents {
	if j == nil {
		j = journal.Open("/nonexistent/shutdown.json", "one", discard())
	}
	ledger := reboots.Open(reboots.Options{Boot: j.BootID(), Journal: j, Store: d.kept, Log: d.log.Logger()})
	return NewBootEvents(nodeName, d.o.Recorder, j, ledger, d.kept, d.log.Logger())
}

// reasons returns the reasons and messages of the Events on the desk's control plane, with a reason
// prefix.
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
	go func() { done <- d.o.Recorder.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func TestAnEventReportsOnceHowTheLastBootEnded(t *testing.T) {
	began := time.Now().Add(-time.Minute)
	pods := func(outcomes ...journal.Outcome) []journal.PodRecord {
		var list []journal.PodRecord
		for i, o := range outcomes {
			list = append(list, journal.PodRecord{Runtime: "containerd", ID: string(rune('a' + i)), Name: string(rune('a' + i)), Outcome: o})
		}
		return list
	}
	for name, c := range map[string]struct {
		content  map[string]any
		want     string
		rebooted string
	}{
		"a reboot that went well": {
			map[string]any{"bootID": "one", "record": journal.Record{BootID: "one", Trigger: journal.TriggerShutdown, Kind: "reboot", StartedAt: began, FinishedAt: began.Add(time.Second), Graceful: true, Pods: pods(journal.Stopped, journal.Killed, journal.Stopped)}},
			"Normal LastShutdownGraceful: the last shutdown (reboot) left no pod running: 3 pods: 2 stopped, 1 killed after their grace period",
			"Normal Rebooted: Node node-a has been rebooted, boot id: two: expected (reboot announced by logind), pods killed: 1, pods were stopped in 1s",
		},
		"a reboot in less time than it was to have": {
			map[string]any{"bootID": "one", "record": journal.Record{BootID: "one", Trigger: journal.TriggerShutdown, Kind: "reboot", StartedAt: began, FinishedAt: began.Add(time.Second), Graceful: true, Pods: pods(journal.Killed), Shortened: &journal.Shortened{
				Granted: metav1.Duration{Duration: 8 * time.Second}, Wanted: metav1.Duration{Duration: 30 * time.Second}, Had: metav1.Duration{Duration: 6 * time.Second},
			}}},
			"Normal LastShutdownGraceful: the last shutdown (reboot) left no pod running: 1 pod killed after their grace period; phases were shortened to 6s of 30s because logind granted 8s",
			"Normal Rebooted: Node node-a has been rebooted, boot id: two: expected (reboot announced by logind), pods killed: 1, pods were stopped in 1s",
		},
		"a forced reboot": {
			map[string]any{"bootID": "one", "watch": map[string]any{"pods": []journal.Ref{{ID: "a", Name: "a"}}}},
			"Warning LastShutdownNotGraceful: the last shutdown was not graceful: the host went down without a drain: 1 pod cut off",
			"Warning Rebooted: Node node-a has been rebooted, boot id: two: unexpected (such as power loss, kernel panic or forced reboot), not graceful: the host went down without a drain",
		},
		"a drain that was cut off": {
			map[string]any{"bootID": "one", "record": journal.Record{BootID: "one", Trigger: journal.TriggerShutdown, Kind: "poweroff", StartedAt: began, Pods: pods(journal.Stopped, "")}},
			"Warning LastShutdownNotGraceful: the last shutdown (poweroff) was not graceful: the host went down during the drain: 2 pods: 1 stopped, 1 cut off",
			"Warning Rebooted: Node node-a has been rebooted, boot id: two: expected (poweroff announced by logind), not graceful: the host went down during the drain",
		},
		"a host without pods": {
			map[string]any{"bootID": "one", "watch": map[string]any{"pods": []journal.Ref{}}},
			"Warning LastShutdownNotGraceful: the last shutdown was not graceful: the host went down without a drain: no pods seen",
			"Warning Rebooted: Node node-a has been rebooted, boot id: two: unexpected (such as power loss, kernel panic or forced reboot), not graceful: the host went down without a drain",
		},
		"the same boot": {map[string]any{"bootID": "two", "watch": map[string]any{"pods": []journal.Ref{{ID: "a"}}}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := left(t, c.content)
			bubble(t, func(t *testing.T, d *desk) {
				d.publishing(t)
				for start := range 3 {
					bootEvents := d.bootEvents(journal.Open(path, "two", discard()))
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					bootEvents.ReportLastBoot(ctx)
					cancel()
					if got := strings.Join(d.reasons(t, "LastShutdown"), "|"); got != c.want {
						t.Errorf("after start %d Events say %q, want %q", start+1, got, c.want)
					}
					if got := strings.Join(d.reasons(t, "Rebooted"), "|"); got != c.rebooted {
						t.Errorf("after start %d Events report the reboot %q, want %q", start+1, got, c.rebooted)
					}
				}
			})
		})
	}
}

func TestTheEndOfTheLastBootIsReportedOnceTheJournalIsReadable(t *testing.T) {
	path := left(t, map[string]any{"bootID": "one", "watch": map[string]any{"pods": []journal.Ref{{ID: "a"}}}})
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, path); err != nil { // cannot be read
		t.Fatal(err)
	}
	bubble(t, func(t *testing.T, d *desk) {
		d.publishing(t)
		d.controlPlaneAway()
		j := journal.Open(path, "two", discard())
		bootEvents := d.bootEvents(j)
		ctx, cancel := context.WithCancel(t.Context())
		done, written := make(chan struct{}), make(chan struct{})
		go func() { defer close(done); bootEvents.ReportLastBoot(ctx) }()
		go func() { defer close(written); j.Run(ctx) }()
		time.Sleep(32 * time.Second) // between two attempts to read it
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		j.Mark([]journal.Ref{}) // reads the journal before it is overwritten
		time.Sleep(time.Hour)
		if got := d.reasons(t, "LastShutdown"); len(got) != 0 {
			t.Errorf("without a control plane Events say %q", got)
		}
		if values, _ := d.kept.Load(); values[keyReported] != nil {
			t.Error("the reboot counts as reported although no Event was sent")
		}
		d.client.Heal()
		time.Sleep(time.Hour)
		if got := d.reasons(t, "LastShutdown"); len(got) != 1 {
			t.Errorf("when both are back Events say %q, want it once", got)
		}
		cancel()
		<-done
		<-written
	})
}

func TestTheEndOfTheLastBootIsReportedOnceAfterALongOutage(t *testing.T) {
	path := left(t, map[string]any{"bootID": "one", "watch": map[string]any{"pods": []journal.Ref{{ID: "a"}}}})
	bubble(t, func(t *testing.T, d *desk) {
		d.controlPlaneAway()
		for range 3 { // failed starts
			bootEvents := d.again(t, "two").bootEvents(journal.Open(path, "two", discard()))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			bootEvents.ReportLastBoot(ctx)
			cancel()
			bootEvents.Keep()
		}
		d.client.Heal()
		last := d.again(t, "two")
		last.publishing(t)
		bootEvents := last.bootEvents(journal.Open(path, "two", discard()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		bootEvents.ReportLastBoot(ctx)
		synctest.Wait()
		if got := d.reasons(t, "LastShutdown"); len(got) != 1 {
			t.Errorf("Events = %q, want one", got)
		}
	})
}

// guarded returns a running guard that reports to the desk's control plane.
func (d *desk) guarded(t *testing.T, pods ...runtimetest.ContainerSpec) (*shutdown.Guard, *runtimetest.Fake) {
	t.Helper()
	fake := runtimetest.NewFake(runtimetest.Options{CallTimeout: time.Hour})
	fake.AddImage(runtimetest.ImageSpec{ID: "image"})
	for _, c := range pods {
		c.ID, c.Image = c.Name+"-c", "image"
		fake.RunPod(runtimetest.PodSpec{ID: c.Name, Name: c.Name, Namespace: "ns", Labels: c.Labels, Containers: []runtimetest.ContainerSpec{c}})
	}
	j := journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", discard())
	guard, err := shutdown.New(shutdown.Options{Phases: plan.Defaults(), Runtime: fake, Journal: j, Log: discard(), Notify: NewDrainEvents(nodeName, d.o.Recorder).ShutdownChanged})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- guard.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return guard, fake
}

func TestAShutdownIsReportedOnceHoweverOftenTheServiceStops(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.publishing(t)
		guard, fake := d.guarded(t, runtimetest.ContainerSpec{Name: "web", EndsAfter: time.Second})
		want := []string{"Normal Shutdown: pods are being stopped: systemd is shutting down", "Normal ShutdownReleased: 1 pod stopped in 1s"}
		for range 3 {
			if _, err := guard.Drain(t.Context(), journal.TriggerServiceStop); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := d.reasons(t, "Shutdown"); !slices.Equal(got, want) {
				t.Errorf("Events = %q, want %q", got, want)
			}
		}
		// A pod that was created since, and is stopped now, causes an Event.
		fake.RunPod(runtimetest.PodSpec{ID: "late", Name: "late", Containers: []runtimetest.ContainerSpec{{ID: "late-c", Name: "c", Image: "image"}}})
		if _, err := guard.Drain(t.Context(), journal.TriggerServiceStop); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := d.reasons(t, "ShutdownReleased"); len(got) != 2 || !strings.Contains(got[1], "2 pods stopped") {
			t.Errorf("Events = %q, want an Event about the second pod", got)
		}
	})
}

// An unguarded boot leaves no journal, and a disk may come from another machine.
func TestRebootsAreReportedOnceAndOnlyThoseOfThisMachine(t *testing.T) {
	folder, elsewhere := t.TempDir(), left(t, map[string]any{"bootID": "zero", "watch": map[string]any{"pods": []journal.Ref{{ID: "a"}}}})
	bubble(t, func(t *testing.T, d *desk) {
		d.publishing(t)
		start := func(boot, machine string, away bool) {
			t.Helper()
			file := filepath.Join(folder, "shutdown.json")
			if boot == "three" { // with the journal of the other machine
				file = elsewhere
			}
			j := journal.Open(file, boot, discard())
			ledger := reboots.Open(reboots.Options{Boot: boot, Machine: reboots.Machine{ID: machine}, Journal: j, Store: d.kept, Log: discard()})
			recorder := d.o.Recorder
			if away { // the control plane is unreachable, and the agent is killed
				recorder = controlplane.NewRecorder(d.client, nodeName, time.Now, nil, discard())
			}
			bootEvents := NewBootEvents(nodeName, recorder, j, ledger, d.kept, discard())
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			bootEvents.ReportLastBoot(ctx)
			if ctx.Err() != nil != away {
				t.Errorf("boot %s: an Event after %v", boot, ctx.Err())
			}
			if queued := recorder.Queued(); away && (len(queued) != 1 || queued[0].Count != 1) {
				t.Errorf("boot %s: queued %v, want one Event that happened once", boot, queued)
			}
		}
		for _, s := range []struct {
			boot, machine string
			want          int
		}{{"one", "m", 0}, {"one", "m", 0}, {"two", "m", 1}, {"two", "m", 1}, {"three", "other", 1}, {"four", "other", 2}} {
			start(s.boot, s.machine, false)
			if got := d.reasons(t, "Rebooted"); len(got) != s.want {
				t.Errorf("in boot %s Events = %q, want %d", s.boot, got, s.want)
			}
		}
		start("five", "other", true)
		start("five", "other", false)
		if got := d.reasons(t, "Rebooted"); len(got) != 3 || !strings.Contains(got[2], "boot id: five: unexpected") || strings.Contains(got[2], "times)") {
			t.Errorf("after an outage Events = %q, want the third once", got)
		}
		if got := d.reasons(t, "LastShutdown"); len(got) != 0 {
			t.Errorf("Events = %q, want none of another machine's", got)
		}
	})
}
