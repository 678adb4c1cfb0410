package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// journal is a log that can be read while it is written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) count(level string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.buf.String(), "level="+level)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// wall is a wall clock that can be set.
type wall struct {
	mu  sync.Mutex
	off time.Duration
}

func (w *wall) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.off)
}

func (w *wall) step(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off += d
}

func policy(id controlplane.Identity) controlplane.LeasePolicy {
	return controlplane.LeasePolicy{Node: "n", Holder: id, Duration: 40 * time.Second, Interval: 10 * time.Second}
}

// keep runs a keeper until the returned function is called.
func keep(t *testing.T, client controlplane.Renewer, p controlplane.LeasePolicy, log *slog.Logger) (*controlplane.LeaseKeeper, func()) {
	t.Helper()
	keeper, err := controlplane.NewLeaseKeeper(client, p, log)
	if err != nil {
		t.Fatal(err)
	}
	return keeper, run(t, keeper.Run)
}

func run(t *testing.T, loop func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- loop(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run() = %v, want context.Canceled", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func stored(t *testing.T, fake *controlplanetest.Fake) *coordinationv1.Lease {
	t.Helper()
	lease, err := fake.Lease(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// after lets time pass, and everything that is due happen.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTheLeaseIsRenewedAtOnceAndThenAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		keeper, stop := keep(t, fake, policy(here), quiet())
		synctest.Wait()
		if n := fake.Calls(controlplanetest.RenewLease); n != 1 {
			t.Errorf("renewals at start = %d, want 1", n)
		}
		keeper.SetOwner("node-uid")
		after(time.Hour)
		renewals, all := fake.Calls(controlplanetest.RenewLease), fake.Calls(controlplanetest.Any)
		if renewals < 3600*100/(10*104) || renewals > 361 {
			t.Errorf("renewals in an hour = %d, want every 10 to 10.4 s", renewals)
		}
		if all != renewals+2 {
			t.Errorf("calls beside renewals = %d, want a read of Lease and Node before the Lease was created", all-renewals)
		}
		lease := stored(t, fake)
		if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != "node-uid" {
			t.Errorf("owners = %v, want the node", lease.OwnerReferences)
		}
		stats := keeper.Stats()
		if stats.Renewals != uint64(renewals) || stats.ConsecutiveFailures != 0 || stats.LastError != nil || stats.Expired(40*time.Second) != nil {
			t.Errorf("Stats() = %+v, want %d renewals without a failure", stats, renewals)
		}
		if stats.Lease.ResourceVersion != lease.ResourceVersion {
			t.Errorf("Stats().Lease = %v, want the stored one", stats.Lease)
		}
		stop()
		after(41 * time.Second)
		if err := keeper.Stats().Expired(40 * time.Second); err != nil {
			t.Errorf("Expired() of a lease that nobody renews = %v, want nil", err)
		}
	})
}

func TestOutages(t *testing.T) {
	faults := map[string]controlplanetest.Fault{
		"refuses at once":         {Err: controlplane.ErrUnavailable},
		"does not answer":         {Hang: true},
		"answers far too late":    {Delay: time.Minute},
		"loses its answers":       {LoseAnswer: true},
		"says conflict each time": {Conflict: true},
	}
	for name, fault := range faults {
		for _, outage := range []time.Duration{5 * time.Second, time.Minute, time.Hour} {
			for phase := range 10 { // phase of the retries in which the outage ends
				until := outage + time.Duration(phase)*900*time.Millisecond
				t.Run(name+" for "+until.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testOutage(t, fault, until) })
				})
			}
		}
	}
}

func TestALeaseIsOverdueOnceTheFleetJudgesTheHostDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		fake.Inject(controlplanetest.RenewLease, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		keeper, stop := keep(t, fake, policy(here), quiet())
		expectExpired := func(when, want string) {
			t.Helper()
			synctest.Wait()
			err := keeper.Stats().Expired(40 * time.Second)
			if (err == nil) != (want == "") || err != nil && (!strings.HasPrefix(err.Error(), want) || !errors.Is(err, controlplane.ErrUnavailable)) {
				t.Errorf("%s: Expired() = %v, want %q and the cause", when, err, want)
			}
		}
		after(39 * time.Second)
		expectExpired("39 s after the start", "")
		after(2 * time.Second)
		expectExpired("41 s after the start", "lease not renewed since the first attempt 41s ago, valid for 40s: ")
		fake.Heal()
		after(10 * time.Second)
		expectExpired("renewed", "")
		fake.Inject(controlplanetest.RenewLease, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		after(51 * time.Second)
		expectExpired("in an outage", "lease not renewed for ")
		stop()
		expectExpired("no longer kept", "")
	})
}

func testOutage(t *testing.T, fault controlplanetest.Fault, outage time.Duration) {
	fake := controlplanetest.NewFake(nil)
	var log journal
	keeper, _ := keep(t, fake, policy(here), log.logger())
	after(35*time.Second + 300*time.Millisecond)
	goroutines := goruntime.NumGoroutine()
	before := stored(t, fake).Spec.RenewTime
	renewals, calls := keeper.Stats().Renewals, fake.Calls(controlplanetest.RenewLease)

	fake.Inject(controlplanetest.Any, fault)
	after(outage)
	attempts := fake.Calls(controlplanetest.RenewLease) - calls
	if most := int(outage/(5*time.Second)) + 12; attempts > 2*most {
		t.Errorf("attempts in an outage of %v = %d, want at most about %d", outage, attempts, most)
	}
	if got := goruntime.NumGoroutine(); got > goroutines+1 {
		t.Errorf("goroutines = %d, want %d and at most one more", got, goroutines)
	}
	if stats := keeper.Stats(); outage > 30*time.Second && (stats.ConsecutiveFailures == 0 || stats.LastError == nil || outage > 50*time.Second && stats.Expired(40*time.Second) == nil) {
		t.Errorf("Stats() in an outage of %v = %+v, want failures and no health", outage, stats)
	}

	fake.Heal()
	after(10 * time.Second)
	stats := keeper.Stats()
	if stats.Renewals == renewals || stats.ConsecutiveFailures != 0 || stats.Expired(40*time.Second) != nil {
		t.Errorf("Stats() one interval after an outage of %v = %+v, want it renewed", outage, stats)
	}
	if now := stored(t, fake).Spec.RenewTime; !before.Before(now) {
		t.Errorf("renewTime = %v, want it after %v", now, before)
	}
	if outage > 30*time.Second && (log.count("WARN") != 1 || log.count("INFO") != 1) {
		t.Errorf("log lines = %d warnings, %d infos, want 1 of each", log.count("WARN"), log.count("INFO"))
	}
	// Between 20 and 60 s, it depends on the last renewal and on the time of the next attempt.
	if n := log.count("ERROR"); outage < 20*time.Second && n != 0 || outage >= time.Minute && n != 1 || n > 1 {
		t.Errorf("%d lines say that the Lease has expired in an outage of %v", n, outage)
	}
}

func TestClockStepsNeverTakeRenewTimeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, clock := controlplanetest.NewFake(nil), &wall{}
		p := policy(here)
		p.Now = clock.now
		_, stop := keep(t, fake, p, quiet())
		synctest.Wait()
		last := stored(t, fake).Spec.RenewTime
		for range 3 {
			for _, step := range []time.Duration{0, -time.Hour, 0, time.Hour, time.Hour, -2 * time.Hour, 0} {
				clock.step(step)
				after(11 * time.Second)
				now := stored(t, fake).Spec.RenewTime
				if passed := now.Sub(last.Time); passed < 9*time.Second {
					t.Errorf("renewTime moved by %v within 11 s after a step of %v, want it to continue with the time that passed", passed, step)
				}
				last = now
			}
		}
		stop()
		clock.step(-24 * time.Hour)
		keep(t, fake, p, quiet()) // the agent restarts
		synctest.Wait()
		if now := stored(t, fake).Spec.RenewTime; !last.Before(now) {
			t.Errorf("renewTime after a restart with the clock a day back = %v, want it after %v", now, last)
		}
	})
}

func TestAnotherWriterOfTheLeaseIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		keeper, _ := keep(t, fake, policy(here), quiet())
		after(time.Second)
		lease := stored(t, fake)
		lease.Labels = map[string]string{"theirs": "kept"}
		if _, err := fake.RenewLease(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		if stats := keeper.Stats(); stats.Renewals != 2 || stats.ConsecutiveFailures != 0 {
			t.Errorf("Stats() = %+v, want the second renewal without a failure", stats)
		}
		if got := stored(t, fake).Labels["theirs"]; got != "kept" {
			t.Errorf("foreign label = %q, want it kept", got)
		}
		if err := fake.Leave(t.Context(), "n", controlplane.Identity{}); err != nil {
			t.Fatal(err)
		}
		after(11 * time.Second)
		stored(t, fake)
	})
}

func TestAServerWithWrongAnswersDoesNotTakeRenewTimeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		keeper, _ := keep(t, fake, policy(here), quiet())
		after(25 * time.Second)
		fake.Inject(controlplanetest.Any, controlplanetest.Fault{Stale: true})
		last := metav1.MicroTime{}
		for range 60 {
			after(10 * time.Second)
			if lease := keeper.Stats().Lease; lease.Spec.RenewTime.Before(&last) {
				t.Fatalf("renewTime = %v, want it not before %v", lease.Spec.RenewTime, last)
			} else {
				last = *lease.Spec.RenewTime
			}
		}
		fake.Heal()
		after(10 * time.Second)
		if stats := keeper.Stats(); stats.ConsecutiveFailures != 0 || !stored(t, fake).Spec.RenewTime.After(last.Time) {
			t.Errorf("Stats() one interval after the lies = %+v, want it renewed", stats)
		}
	})
}

func TestTwoAgentsOfOneNameDoNotShareALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, ahead := controlplanetest.NewFake(nil), &wall{}
		ahead.step(time.Hour) // its clock is wrong
		p := policy(here)
		p.Now = ahead.now
		_, stopFirst := keep(t, fake, p, quiet())
		synctest.Wait()
		var log journal
		second, _ := keep(t, fake, policy(there), log.logger())
		after(5 * time.Minute)
		if n := log.count("ERROR"); n != 0 {
			t.Errorf("%d errors in the log of the second agent, want none: no Lease of it has expired", n)
		}
		var identity *controlplane.IdentityError
		if stats := second.Stats(); !errors.As(stats.LastError, &identity) || stats.Renewals != 0 {
			t.Fatalf("Stats() of the second agent = %+v, want an IdentityError and no renewal", stats)
		}
		if identity.Theirs != here || identity.Ours != there {
			t.Errorf("LastError = %v, want both machines named", identity)
		}
		stopFirst()
		after(30 * time.Second)
		if n := second.Stats().Renewals; n != 0 {
			t.Errorf("renewals by the second agent before the lease ran out = %d, want 0", n)
		}
		after(31 * time.Second)
		if stats := second.Stats(); stats.Renewals == 0 || stats.LastError != nil {
			t.Errorf("Stats() of the second agent after the first is gone = %+v, want it renewed", stats)
		}
	})
}

func TestTakeoverTakesTheLeaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		p := policy(here)
		p.Takeover = true
		first, _ := keep(t, fake, p, quiet())
		after(3 * time.Second)
		p = policy(there)
		p.Takeover = true
		second, _ := keep(t, fake, p, quiet())
		after(5 * time.Minute)
		var identity *controlplane.IdentityError
		if err := first.Stats().LastError; !errors.As(err, &identity) || identity.Theirs != there {
			t.Errorf("LastError of the agent that lost its lease = %v, want an IdentityError", err)
		}
		if stats := second.Stats(); stats.LastError != nil || stats.Renewals < 25 {
			t.Errorf("Stats() of the agent that took it = %+v, want it renewed all along", stats)
		}
	})
}

// A kubelet's Lease does not name its machine. Only the Node does.
func TestALeaseOfAnotherMachinesKubeletIsNotTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		node    controlplane.Identity
		refused bool
	}{
		"on another machine": {there, true},
		"on this machine":    {here, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := controlplanetest.NewFake(nil)
				if _, err := fake.Register(t.Context(), nodeOf(tc.node, nil), controlplane.RegisterOptions{}); err != nil {
					t.Fatal(err)
				}
				if _, err := fake.RenewLease(t.Context(), leaseOf(t, controlplane.Identity{}, time.Now())); err != nil {
					t.Fatal(err)
				}
				keeper, _ := keep(t, fake, policy(here), quiet())
				synctest.Wait()
				var identity *controlplane.IdentityError
				if stats := keeper.Stats(); errors.As(stats.LastError, &identity) != tc.refused || (stats.Renewals == 0) != tc.refused {
					t.Errorf("Stats() = %+v, want refused = %v", stats, tc.refused)
				}
			})
		})
	}
}

// Whoever has the Lease gets the Node. A living machine whose Lease was deleted creates it again.
func TestALeaseIsNotCreatedWhileTheNodeIsAnotherMachines(t *testing.T) {
	for name, tc := range map[string]struct {
		takeover bool
		pace     time.Duration
		waits    time.Duration
	}{
		"by default":                         {waits: 40 * time.Second},
		"while hosts renew every 30 seconds": {pace: 2 * time.Minute, waits: 2 * time.Minute},
		"with takeover":                      {takeover: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := controlplanetest.NewFake(nil)
				if _, err := fake.Register(t.Context(), nodeOf(there, nil), controlplane.RegisterOptions{}); err != nil {
					t.Fatal(err)
				}
				p := policy(here)
				p.Takeover = tc.takeover
				keeper, err := controlplane.NewLeaseKeeper(fake, p, quiet())
				if err != nil {
					t.Fatal(err)
				}
				if tc.pace > 0 {
					keeper.SetPace(tc.pace)
				}
				run(t, keeper.Run)
				if tc.waits > 0 {
					after(tc.waits - time.Second)
					if stats := keeper.Stats(); stats.Renewals > 0 || !strings.Contains(stats.LastError.Error(), "another machine") {
						t.Errorf("Stats() = %+v, want the Lease not created", stats)
					}
				}
				after(2 * time.Second)
				if stats := keeper.Stats(); stats.Renewals != 1 {
					t.Errorf("Stats() = %+v, want the Lease created", stats)
				}
			})
		})
	}
}

// A Lease whose renewals are in time can also be created in time: each call has the time of a renewal. A short interval leaves a
// call no less.
func TestASlowControlPlaneGetsALease(t *testing.T) {
	for _, interval := range []time.Duration{10 * time.Second, time.Second, time.Millisecond} {
		t.Run(interval.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := controlplanetest.NewFake(nil)
				fake.Inject(controlplanetest.Any, controlplanetest.Fault{Delay: 7 * time.Second})
				p := policy(here)
				p.Interval = interval
				keeper, _ := keep(t, fake, p, quiet())
				after(time.Minute)
				if stats := keeper.Stats(); stats.Renewals < 4 {
					t.Errorf("Stats() = %+v, want the Lease created and renewed", stats)
				}
			})
		})
	}
}

// A Node that cannot be read does not hold up a Lease that exists.
func TestARenewalDoesNotReadTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		_, stop := keep(t, fake, policy(here), quiet())
		after(time.Second)
		stop()
		fake.Inject(controlplanetest.Node, controlplanetest.Fault{Err: controlplane.ErrForbidden})
		restarted, _ := keep(t, fake, policy(here), quiet())
		after(time.Second)
		if stats := restarted.Stats(); stats.Renewals != 1 {
			t.Errorf("Stats() = %+v, want the Lease renewed", stats)
		}
	})
}

// A machine that was suspended does not renew a Lease that it lost meanwhile, even if that has ended.
func TestALostLeaseIsNotCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		keeper, _ := keep(t, fake, policy(here), quiet())
		after(time.Second)
		if err := fake.Leave(t.Context(), "n", here); err != nil {
			t.Fatal(err)
		}
		if _, err := fake.Register(t.Context(), nodeOf(there, nil), controlplane.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		after(30 * time.Second)
		stats := keeper.Stats()
		if stats.Renewals != 1 || !strings.Contains(stats.LastError.Error(), "another machine") {
			t.Errorf("Stats() = %+v, want the Lease not created again", stats)
		}
		if stats.Lease.ResourceVersion == "" {
			t.Error("Stats().Lease has no resourceVersion, want it as last stored: others read it")
		}
	})
}

func TestEachRenewalSaysWhetherTheHostReboots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		var reboots atomic.Bool
		p := policy(here)
		p.Rebooting = reboots.Load
		keep(t, fake, p, quiet())
		for _, want := range []bool{false, true, false} {
			reboots.Store(want)
			after(11 * time.Second)
			if _, is := stored(t, fake).Annotations[controlplane.AnnotationRebooting]; is != want {
				t.Errorf("annotation on the Lease = %t, want %t", is, want)
			}
		}
	})
}

func TestALeasePolicyThatCannotWorkIsRefused(t *testing.T) {
	for name, change := range map[string]func(*controlplane.LeasePolicy){
		"an interval without room to retry": func(p *controlplane.LeasePolicy) { p.Interval = 20 * time.Second },
		"no interval":                       func(p *controlplane.LeasePolicy) { p.Interval = 0 },
		"no duration":                       func(p *controlplane.LeasePolicy) { p.Duration = 0 },
		"half a second":                     func(p *controlplane.LeasePolicy) { p.Duration = 40500 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			p := policy(here)
			change(&p)
			if _, err := controlplane.NewLeaseKeeper(controlplanetest.NewFake(nil), p, quiet()); err == nil {
				t.Errorf("NewLeaseKeeper(%+v) = nil, want an error", p)
			}
		})
	}
}
