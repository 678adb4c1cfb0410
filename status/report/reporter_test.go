package report

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
	"hostler.io/hostler/systemd"
)

func TestTheNodeIsWrittenOnChangeAndRegularly(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.after(t, 0, "at the start", 1, 1)
		node := d.stored(t)
		if c := ready(node); c.Status != corev1.ConditionTrue || c.Reason != status.ReasonHostReady {
			t.Errorf("Ready = %+v, want True", c)
		}
		if !slices.Equal(d.named, []types.UID{node.UID}) {
			t.Errorf("the lease's owner = %v, want %s", d.named, node.UID)
		}
		d.after(t, 4*time.Minute+55*time.Second, "as long as nothing changes", 1, 1)
		d.after(t, 10*time.Second, "after the report interval", 1, 2)
		d.after(t, time.Minute, "nothing changed again", 1, 2)

		d.set(func() { d.guard = shutdown.Status{State: shutdown.Disarmed, Reason: "no logind"} })
		d.after(t, 9*time.Second+time.Millisecond, "a change that the next check finds", 1, 3)
		d.set(func() { d.guard = shutdown.Status{State: shutdown.Armed} })
		d.Changed()
		d.after(t, 0, "a change that somebody noticed", 1, 4)
		d.Changed()
		d.Changed()
		d.after(t, time.Second, "a false alarm", 1, 4)
	})
}

func TestANodeThatWasDeletedIsRegisteredAgain(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		first := d.stored(t).UID
		if err := d.client.Leave(t.Context(), nodeName, controlplane.Identity{}); err != nil {
			t.Fatal(err)
		}
		d.set(func() { d.guard.State = shutdown.Disarmed })
		d.Changed()
		d.after(t, 0, "at the next write", 2, 3)
		node := d.stored(t)
		if node == nil || node.UID == first || !slices.Equal(d.named, []types.UID{first, node.UID}) || d.lost != 1 {
			t.Errorf("the Node = %v, and the lease's owners = %v, want a new one that the lease knows", node, d.named)
		}
		if d.log.Count("registers it again") != 1 || d.log.Count("node registered") != 2 {
			t.Errorf("log = %s, want the loss and both registrations", d.log)
		}
	})
}

func TestAnUnavailableControlPlaneIsLoggedWhenItBeginsAndEnds(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.client.Inject(controlplanetest.Any, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		d.start(t)
		time.Sleep(10 * time.Minute)
		if _, _, connected, err := d.Current(); connected || !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("Current() = %v, %v, want that it is not connected, and why", connected, err)
		}
		if d.log.Count("cannot write node status") != 1 {
			t.Errorf("log = %s, want one line of the failure", d.log)
		}
		if n, _, _, _ := d.Current(); n == nil || ready(n).Status != corev1.ConditionTrue {
			t.Errorf("the local Node = %v, want it known although it cannot be written", n)
		}
		d.client.Heal()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if _, _, connected, err := d.Current(); !connected || err != nil || d.stored(t) == nil {
			t.Errorf("Current() = %v, %v, want it connected again", connected, err)
		}
		if d.log.Count("cannot write node status") != 1 || d.log.Count("status writable again") != 1 {
			t.Errorf("log = %s, want one line of each", d.log)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if last := len(d.heartbeats) - 1; last < 50 || d.heartbeats[0] == nil || d.heartbeats[last] != nil {
			t.Errorf("%d heartbeats, first %v, last %v, want a failure reported each round, then success", len(d.heartbeats), d.heartbeats[0], d.heartbeats[last])
		}
	})
}

func TestAHangingControlPlaneHoldsNoRoundForLong(t *testing.T) {
	for _, m := range []controlplanetest.Method{controlplanetest.Register, controlplanetest.UpdateStatus} {
		bubble(t, func(t *testing.T, d *desk) {
			d.client.Inject(m, controlplanetest.Fault{Hang: true})
			began := time.Now()
			err := d.once(t.Context(), nil)
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > WriteTimeout {
				t.Errorf("a round with %s hanging = %v after %v, want a deadline of %v", m, err, took, WriteTimeout)
			}
			d.client.Heal()
			if err := d.once(t.Context(), nil); err != nil || d.stored(t) == nil {
				t.Errorf("the round after it = %v, want the Node stored", err)
			}
		})
	}
}

func drainingStatus() shutdown.Status {
	return shutdown.Status{
		State: shutdown.Draining, Reason: "a shutdown (reboot) was announced",
		Current: &journal.Record{Kind: "reboot", StartedAt: time.Now()},
	}
}

func TestReportShutdownIsStoredWhenItReturns(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Delay: time.Second})
		lists := len(d.runtime.Calls())
		if err := d.ReportShutdown(t.Context(), drainingStatus()); err != nil {
			t.Fatal(err)
		}
		if c := ready(d.stored(t)); c.Status != corev1.ConditionFalse || c.Reason != status.ReasonDraining || !strings.Contains(c.Message, "reboot") {
			t.Errorf("Ready = %+v, want that the node drains, and why", c)
		}
		if n := len(d.runtime.Calls()); n != lists {
			t.Errorf("the report asked the runtime %d times, want it made from the facts at hand", n-lists)
		}
	})
}

// The status in a shutdown's report is newer than the guard's own: the guard reports before it
// changes its state.
func TestReportShutdownUsesThePassedStatus(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.set(func() { d.guard = drainingStatus() })
		released := drainingStatus()
		released.State, released.Reason = shutdown.Released, "all pods stopped"
		if err := d.ReportShutdown(t.Context(), released); err != nil {
			t.Fatal(err)
		}
		if c := ready(d.stored(t)); !strings.Contains(c.Message, "all pods stopped") {
			t.Errorf("Ready = %+v, want the state that the guard reported", c)
		}
	})
}

func TestReportShutdownKeepsToItsContext(t *testing.T) {
	for name, hang := range map[string]bool{"the control plane hangs": false, "a round before it hangs": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				if err := d.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				d.client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Hang: true})
				if hang {
					d.set(func() { d.guard.State = shutdown.Disarmed })
					d.start(t)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				began := time.Now()
				err := d.ReportShutdown(ctx, drainingStatus())
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 2*time.Second {
					t.Errorf("ReportShutdown() = %v after %v, want it given up after 2s", err, took)
				}
			})
		})
	}
}

func TestANodeOfAnotherOwnerIsNotWritten(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.mine = false
		d.start(t)
		d.set(func() { d.guard.State = shutdown.Disarmed })
		time.Sleep(20 * time.Minute)
		if err := d.ReportShutdown(t.Context(), drainingStatus()); err != nil {
			t.Errorf("ReportShutdown() beside a kubelet = %v, want nothing done", err)
		}
		if n := d.client.Calls(controlplanetest.Any); n != 0 {
			t.Errorf("the control plane was called %d times, want never", n)
		}
		if n, _, _, _ := d.Current(); n == nil {
			t.Error("Current() = no Node, want the local Node")
		}
		d.set(func() { d.mine = true })
		d.Changed()
		d.after(t, 0, "when it becomes mine", 1, 1)
		d.set(func() { d.mine = false })
		d.after(t, time.Hour, "when it is lost again", 1, 1)
		d.set(func() { d.mine = true })
		d.after(t, 10*time.Second, "and when it recovers", 2, 2)
	})
}

func TestANameThatAnotherMachineHoldsIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
		other.Status.NodeInfo.MachineID = "0123456789abcdef0123456789abcdef"
		if _, err := d.client.Register(t.Context(), other, controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		now, duration := metav1.NowMicro(), int32(3600)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Spec: coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &duration}}
		if _, err := d.client.RenewLease(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		err := d.once(t.Context(), nil)
		var identity *controlplane.IdentityError
		if !errors.As(err, &identity) || d.client.Calls(controlplanetest.UpdateStatus) != 0 {
			t.Errorf("a round = %v, want it refused because of the other machine", err)
		}
		d.o.Takeover = true
		if err := d.once(t.Context(), nil); err != nil || d.stored(t).Status.NodeInfo.MachineID != d.machine.MachineID {
			t.Errorf("a round with takeover = %v, want the Node to be this machine's", err)
		}
	})
}

func TestAnAgentThatIsStartedAgainRemembers(t *testing.T) {
	for name, c := range map[string]struct {
		boot string // of the earlier process; empty for this one
		kept bool
	}{
		"in the same boot": {"", true},
		"in another boot":  {"11111111-2222-3333-4444-555555555555", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				if err := d.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				since := ready(d.stored(t)).LastTransitionTime
				if c.boot != "" {
					if err := d.client.Edit(t.Context(), nodeName, func(n *corev1.Node) { n.Status.NodeInfo.BootID = c.boot }); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Hour)

				next := newUnaskedDesk(t)
				next.client, next.o.Client = d.client, d.client
				if err := next.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				got := ready(next.stored(t))
				kept := got.Status == corev1.ConditionTrue && got.LastTransitionTime.Equal(&since)
				if kept != c.kept {
					t.Errorf("Ready = %+v, want it as it was since %v: %v", got, since, c.kept)
				}
			})
		})
	}
}

func TestTransitionsAreEventsAndLogLines(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = d.o.Recorder.Run(ctx) }()
		defer func() { cancel(); <-done }()
		d.start(t)
		d.runtime.SetInfo(func(i *runtime.Info) { i.Ready, i.Message = false, "shutting down" })
		if err := d.runtimes.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.Changed()
		time.Sleep(time.Minute)
		d.runtime.SetInfo(func(i *runtime.Info) { i.Ready, i.Message = true, "" })
		if err := d.runtimes.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.Changed()
		time.Sleep(time.Minute)
		events, err := d.client.Events(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, e := range events {
			if e.InvolvedObject.Name == nodeName && (e.Reason == "NodeReady" || e.Reason == "NodeNotReady" || e.Reason == "Registered") {
				reasons = append(reasons, e.Type+" "+e.Reason)
			}
		}
		want := []string{"Normal NodeReady", "Normal Registered", "Warning NodeNotReady", "Normal NodeReady"}
		slices.Sort(reasons) // a repetition moves the first Event to the end
		slices.Sort(want)
		if !slices.Equal(slices.Compact(reasons), slices.Compact(want)) {
			t.Errorf("events = %v, want %v", reasons, want)
		}
		if got, want := slices.DeleteFunc(d.counted, func(c string) bool { return !strings.HasPrefix(c, "Ready=") }), []string{"Ready=True", "Ready=False", "Ready=True"}; !slices.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
		if d.log.Count("level=WARN msg=condition component=status type=Ready status=False") != 1 || d.log.Count("level=INFO msg=condition component=status type=Ready status=True") != 1 {
			t.Errorf("log = %s, want one line when Ready becomes False and one when it becomes True again", d.log)
		}
		const protected = "type=hostler.io/ShutdownProtected" // the running guard does not log it
		if d.log.Count(protected+" status=False") != 1 || d.log.Count(protected+" status=True") != 1 {
			t.Errorf("log = %s, want a line when pods are out of reach and one when they are not", d.log)
		}
	})
}

// The guard connects to logind after the agent has started. Only a change after that is an Event.
func TestTheStartOfTheShutdownGuardCausesNoEvent(t *testing.T) {
	for name, c := range map[string]struct {
		before bool // whether the agent is restarted
		found  shutdown.Status
		want   []string
	}{
		"protected after the boot":       {false, shutdown.Status{State: shutdown.Armed}, []string{"Normal NodeShutdownProtected"}},
		"unprotected after the boot":     {false, shutdown.Status{State: shutdown.Disarmed, Trouble: systemd.ErrNoLogind}, []string{"Warning NodeShutdownNotProtected"}},
		"protected after a restart":      {true, shutdown.Status{State: shutdown.Armed}, nil},
		"unprotected only since restart": {true, shutdown.Status{State: shutdown.Disarmed, Trouble: systemd.ErrNoLogind}, []string{"Warning NodeShutdownNotProtected"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				if c.before {
					if err := d.once(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					next := newDesk(t)
					next.client, next.o.Client, next.kept, next.o.Store = d.client, d.client, d.kept, d.kept
					d = next
				}
				d.o.Recorder = controlplane.NewRecorder(d.client, nodeName, time.Now, func() bool { return false }, discard())
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); _ = d.o.Recorder.Run(ctx) }()
				defer func() { cancel(); <-done }()
				starting := shutdown.Status{State: shutdown.Disarmed, Reason: "connecting to logind", Trouble: shutdown.ErrStarting}
				for _, guard := range []shutdown.Status{starting, c.found} {
					guard.InhibitDelayNeeded.Duration = 30 * time.Second
					d.set(func() { d.guard = guard })
					if err := d.once(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
				}
				events, err := d.client.Events(ctx)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, e := range events {
					if strings.HasPrefix(e.Reason, "NodeShutdown") {
						got = append(got, e.Type+" "+e.Reason)
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("events = %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestANodeThatIsAlwaysDeletedIsNotRegisteredInATightLoop(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Delay: time.Millisecond, Err: controlplane.ErrNotFound})
		d.start(t)
		time.Sleep(time.Minute)
		if n := d.client.Calls(controlplanetest.Register); n < 5 || n > 10 {
			t.Errorf("the node was registered %d times in a minute, want it at the usual pace of 10s", n)
		}
		if _, _, connected, err := d.Current(); connected || !errors.Is(err, controlplane.ErrNotFound) {
			t.Errorf("Current() = connected %v, %v, want the fault", connected, err)
		}
	})
}

// If the server requests a pause, the status waits for it, except in a shutdown; the host is still
// measured.
func TestAPauseThatTheServerRequestsIsKept(t *testing.T) {
	for name, c := range map[string]struct{ asked, least, most time.Duration }{
		"for less than an interval":   {5 * time.Second, 5 * time.Second, 20 * time.Second},
		"for a minute":                {time.Minute, time.Minute, 85 * time.Second},
		"for longer than is honoured": {time.Hour, 5 * time.Minute, 6*time.Minute + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.start(t)
				d.client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Err: &controlplane.BusyError{After: c.asked, Err: controlplane.ErrUnavailable}, Times: 1})
				d.set(func() { d.guard.State = shutdown.Disarmed })
				d.Changed()
				synctest.Wait()
				began, writes := time.Now(), d.writes()[1]
				for d.writes()[1] == writes && time.Since(began) < time.Hour {
					time.Sleep(time.Second)
					d.Changed() // does not shorten the pause
					synctest.Wait()
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("requested %v, and written again after %v, want %v to %v", c.asked, took, c.least, c.most)
				}
				if d.log.Count("cannot write node status") != 1 || d.log.Count("status writable again") != 1 {
					t.Errorf("log = %s, want the failure reported once, and its end", d.log)
				}
			})
		})
	}
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Err: &controlplane.BusyError{After: time.Minute, Err: controlplane.ErrUnavailable}, Times: 1})
		d.set(func() { d.guard.State = shutdown.Disarmed })
		d.Changed()
		synctest.Wait()
		if err := d.ReportShutdown(t.Context(), shutdown.Status{State: shutdown.Draining}); err != nil || ready(d.stored(t)).Reason != status.ReasonDraining {
			t.Errorf("ReportShutdown() = %v, and Ready is %+v, want it written at once", err, ready(d.stored(t)))
		}
	})
}
