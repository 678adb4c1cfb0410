package maintenance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

var criticalLabel = map[string]string{runtime.LabelCritical: "true"}

func TestADrainCordonsFirstAndReportsEachPod(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.publishing(t)
		d.register(t)
		drainer, fake := d.guarded(t,
			runtimetest.ContainerSpec{Name: "web", EndsAfter: 2 * time.Second},
			runtimetest.ContainerSpec{Name: "api", EndsAfter: time.Second},
			runtimetest.ContainerSpec{Name: "dns", Labels: criticalLabel},
		)
		var steps []string
		report, err := drainer.Drain(t.Context(), maintenance.DrainRequest{}, func(s maintenance.DrainStep) {
			if !d.stored(t).Spec.Unschedulable {
				t.Error("a pod was stopped before the node was cordoned")
			}
			if s.Waiting != "" {
				steps = append(steps, s.Waiting)
				return
			}
			steps = append(steps, fmt.Sprintf("%s %s %d/%d @%v", s.Outcome, s.Name, s.Done, s.Total, time.Since(report0(s))))
		})
		if err != nil || !report.Graceful || !report.Unschedulable || report.Node != nodeName || report.Message != "" || len(report.Pods) != 3 {
			t.Errorf("Drain() = %+v, %v, want it graceful and cordoned", report, err)
		}
		if want := []string{"stopped api 1/2 @1s", "stopped web 2/2 @2s", "skipped dns 2/2 @0s", "checking for 3s that nothing starts a stopped container again"}; !slices.Equal(steps, want) {
			t.Errorf("steps = %q, want %q", steps, want)
		}
		if n := len(fake.Signals()); n != 2 {
			t.Errorf("%d signals, want those of two pods", n)
		}
		d.wantCordoned(t, "after the drain", true)
		time.Sleep(time.Minute)
		want := []string{"Normal DrainStarted: unknown user asked to stop all pods but critical ones", "Normal DrainFinished: 3 pods: 2 stopped, 1 not touched in 5s"}
		if got := d.reasons(t, "Drain"); !slices.Equal(got, want) {
			t.Errorf("Events = %q, want %q", got, want)
		}
	})
}

// report0 returns when a step's pod was sent the stop signal; now if it was not.
func report0(s maintenance.DrainStep) time.Time {
	if s.StartedAt.IsZero() {
		return time.Now()
	}
	return s.StartedAt
}

func TestADrainByACallerThatReadsNothingIsNotBlocked(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		drainer, fake := d.guarded(t, runtimetest.ContainerSpec{Name: "web"}, runtimetest.ContainerSpec{Name: "api", EndsAfter: time.Second}, runtimetest.ContainerSpec{Name: "dns", Labels: criticalLabel})
		began := time.Now()
		reported := 0
		if _, err := drainer.Drain(t.Context(), maintenance.DrainRequest{All: true}, func(s maintenance.DrainStep) {
			if s.Waiting == "" {
				reported++
			}
			time.Sleep(time.Minute)
		}); err != nil {
			t.Fatal(err)
		}
		for _, s := range fake.Signals() {
			if s.At.Sub(began) > time.Second {
				t.Errorf("%s of %s came after %v, want nobody waited for", s.Name, s.ContainerID, s.At.Sub(began))
			}
		}
		if reported != 3 {
			t.Errorf("%d pods were reported, want all 3 in the end", reported)
		}
	})
}

func TestADrainEndsWithItsCallerAndLeavesTheNodeCordoned(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.publishing(t)
		d.register(t)
		drainer, fake := d.guarded(t, runtimetest.ContainerSpec{Name: "web", IgnoresTERM: true}, runtimetest.ContainerSpec{Name: "dns", Labels: criticalLabel})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		report, err := drainer.Drain(ctx, maintenance.DrainRequest{All: true}, func(maintenance.DrainStep) {})
		if !errors.Is(err, shutdown.ErrCancelled) || report.CancelledAt.IsZero() || time.Since(began) > 6*time.Second {
			t.Errorf("Drain() = %+v, %v after %v, want it cancelled soon", report, err, time.Since(began))
		}
		time.Sleep(time.Minute)
		if got := fake.Signals(); len(got) != 1 || got[0].Name != "TERM" {
			t.Errorf("signals = %v, want the one from before", got)
		}
		d.wantCordoned(t, "after the interruption", true)
		if got := d.reasons(t, "DrainEnded"); len(got) != 1 || !strings.HasPrefix(got[0], "Warning DrainEndedEarly") {
			t.Errorf("Events = %q, want that it ended early", got)
		}
	})
}

func TestOfTwoDrainsAtOnceOneIsRefusedAndOneIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.publishing(t)
		d.over(&hanging{d.client, 1}) // blocks both after their checks
		d.register(t)
		drainer, fake := d.guarded(t, runtimetest.ContainerSpec{Name: "web", EndsAfter: 15 * time.Second})
		errs := make(chan error)
		for range 2 {
			go func() {
				_, err := drainer.Drain(t.Context(), maintenance.DrainRequest{}, func(maintenance.DrainStep) {})
				errs <- err
			}()
		}
		if first, second := <-errs, <-errs; first == nil || !strings.Contains(first.Error(), "another drain is running") || second != nil {
			t.Errorf("Drain() = %v, %v, want one refused and one done", first, second)
		}
		if n := len(fake.Signals()); n != 1 {
			t.Errorf("%d signals, want one", n)
		}
		time.Sleep(time.Minute)
		want := []string{"Normal DrainStarted: unknown user asked to stop all pods but critical ones", "Normal DrainFinished: 1 pod stopped in 18s"}
		if got := d.reasons(t, "Drain"); !slices.Equal(got, want) {
			t.Errorf("Events = %q, want %q", got, want)
		}
	})
}

func TestADrainThatAShutdownCutsShortReportsWhatItDid(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		drainer, _ := d.guarded(t, runtimetest.ContainerSpec{Name: "web"}, runtimetest.ContainerSpec{Name: "api", EndsAfter: 10 * time.Second}, runtimetest.ContainerSpec{Name: "dns", Labels: criticalLabel})
		time.AfterFunc(time.Second, func() { _, _ = d.Guard.Drain(t.Context(), journal.TriggerServiceStop) })
		var steps []string
		_, err := drainer.Drain(t.Context(), maintenance.DrainRequest{All: true}, func(s maintenance.DrainStep) { steps = append(steps, string(s.Outcome)+" "+s.Name) })
		if err == nil || !strings.Contains(err.Error(), "cut it short\nhint: ") {
			t.Errorf("Drain() = %v, want that it was cut short", err)
		}
		if want := []string{"stopped web", "left api"}; !slices.Equal(steps, want) {
			t.Errorf("steps = %q, want %q: dns was neither stopped nor exempted", steps, want)
		}
	})
}

// Such a kubelet does not start stopped pods, and `kubectl drain` would wait for it forever.
func TestADrainDoesNotWaitForAKubeletThatHasGone(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.Owners = owner.New(nil, func(context.Context, map[owner.Job]owner.Owner) map[owner.Job]owner.Owner {
			return map[owner.Job]owner.Owner{owner.Node: {Name: owner.Kubelet, Evidence: "which does not run", Absent: true}}
		}, slog.New(slog.DiscardHandler))
		drainer, _ := d.guarded(t, runtimetest.ContainerSpec{Name: "web", EndsAfter: time.Second})
		report, err := drainer.Drain(t.Context(), maintenance.DrainRequest{}, func(maintenance.DrainStep) {})
		if err != nil || report.Unschedulable || len(report.Pods) != 1 || !strings.Contains(report.Message, "which does not run") {
			t.Errorf("Drain() = %+v, %v, want the pod stopped and the Node left alone", report, err)
		}
	})
}

func TestRefusedDrainsSayWhyAndStopNothing(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*testing.T, *desk)
		begin   func(*testing.T, *desk) // called with the guard
		want    []string
	}{
		"beside a kubelet": {prepare: func(_ *testing.T, d *desk) {
			seen := &owner.Owner{}
			d.Owners = ownedBy(owner.Auto, seen)
			*seen = owner.Owner{Name: owner.Kubelet, Evidence: "process kubelet, pid 7"} // started after the last check
		}, want: []string{"process kubelet, pid 7", "kubectl drain node-a --ignore-daemonsets"}},
		"in a shutdown": {begin: func(t *testing.T, d *desk) {
			if _, err := d.Guard.Drain(t.Context(), journal.TriggerServiceStop); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"drain: the host is already shutting down", "hostler status"}},
		"in another drain": {begin: func(t *testing.T, d *desk) {
			go func() { _, _ = d.Guard.DrainManually(t.Context(), false, func(*journal.Record) {}) }()
			synctest.Wait()
		}, want: []string{"drain: another drain is running", "Ctrl-C"}},
		"in a drain of the host itself": {begin: func(t *testing.T, d *desk) {
			go func() {
				_, _ = d.Guard.DrainOnDemand(t.Context(), shutdown.Demand{Trigger: journal.TriggerReboot, Cause: "reboot: new kernel"}, func(*journal.Record) {})
			}()
			synctest.Wait()
		}, want: []string{"drain: the host drains itself: reboot: new kernel\n", "hostler status"}},
		"where nodes cannot be cordoned": {prepare: func(_ *testing.T, d *desk) {
			d.over(plain{d.client})
		}, want: []string{"cannot cordon nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				if c.prepare != nil {
					c.prepare(t, d)
				}
				drainer, fake := d.guarded(t, runtimetest.ContainerSpec{Name: "web", EndsAfter: 10 * time.Second})
				if c.begin != nil {
					c.begin(t, d)
				}
				before := len(fake.Signals())
				_, err := drainer.Drain(t.Context(), maintenance.DrainRequest{}, func(maintenance.DrainStep) {})
				var reported *hint.Error
				if !errors.As(err, &reported) || reported.Hint == "" {
					t.Fatalf("Drain() = %v, want an error with a hint", err)
				}
				for _, want := range c.want {
					if !strings.Contains(reported.Error(), want) {
						t.Errorf("Drain() = %v, want %q in it", reported, want)
					}
				}
				if n := len(fake.Signals()); n != before {
					t.Errorf("%d containers were stopped, want none", n-before)
				}
				if name != "where nodes cannot be cordoned" {
					if p, err := drainer.DrainPlan(t.Context(), maintenance.DrainRequest{}); err != nil || !strings.Contains(p.Refusal, c.want[0]) {
						t.Errorf("DrainPlan() = %+v, %v, want it to say the same", p, err)
					}
				}
				if d.Reporter.Decided() != nil {
					t.Errorf("Decided() = %+v, want the node as it was", d.Reporter.Decided())
				}
			})
		})
	}
}

// The pods of these runtimes keep running, and are unknown.
func TestADrainReportsRuntimesThatAreOutOfReach(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.register(t)
		d.OutOfReach = func() string { return "podman: nothing answers" }
		drainer, _ := d.guarded(t, runtimetest.ContainerSpec{Name: "web"})
		p, err := drainer.DrainPlan(t.Context(), maintenance.DrainRequest{All: true})
		if err != nil || p.Message != "podman: nothing answers" {
			t.Errorf("DrainPlan() = %q, %v, want it to name podman", p.Message, err)
		}
		report, err := drainer.Drain(t.Context(), maintenance.DrainRequest{All: true}, func(maintenance.DrainStep) {})
		if err != nil || report.Graceful || report.Error != "podman: nothing answers" || len(report.Pods) != 1 {
			t.Errorf("Drain() = %+v, %v, want one pod stopped, and podman named", report, err)
		}
		kept := d.Guard.Status().Drained
		if kept == nil || kept.Trigger != journal.TriggerManualAll || kept.Graceful || kept.Error != report.Error || len(kept.Pods) != 1 || kept.Pods[0].Outcome != journal.Stopped {
			t.Errorf("Status().Drained = %+v, want the record that Drain() returned", kept)
		}
		if again, err := drainer.Drain(t.Context(), maintenance.DrainRequest{All: true}, func(maintenance.DrainStep) {}); err != nil || len(again.Pods) != 0 {
			t.Errorf("Drain() once more = %+v, %v, want nothing to stop", again, err)
		}
		if now := d.Guard.Status().Drained; now == nil || len(now.Pods) != 1 {
			t.Errorf("Status().Drained = %+v after a drain with nothing to stop, want the one before", now)
		}
	})
}

func TestADrainWithoutANodeIsADrain(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.Owners = ownedBy(owner.Off, nil)
		drainer, fake := d.guarded(t, runtimetest.ContainerSpec{Name: "web"})
		report, err := drainer.Drain(t.Context(), maintenance.DrainRequest{}, func(maintenance.DrainStep) {})
		if err != nil || !report.Graceful || report.Unschedulable || !strings.Contains(report.Message, "switched off") || len(fake.Signals()) != 1 {
			t.Errorf("Drain() = %+v, %v, want the pod stopped, and why nothing is cordoned", report, err)
		}
	})
}
