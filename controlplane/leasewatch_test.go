package controlplane_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

func TestAMachineIsDeadOnceItsLeaseWasWatchedNotToBeRenewed(t *testing.T) {
	lasting := func(seconds int32) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &seconds }
	}
	renew := func(at time.Duration) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = start.Add(at) }
	}
	same := func(*coordinationv1.Lease) {}
	type check struct {
		after  time.Duration
		change func(*coordinationv1.Lease)
		want   controlplane.Observation
	}
	alive := func(at time.Duration, renewed bool) controlplane.Observation {
		return controlplane.Observation{Renewed: renewed, Until: start.Add(at)}
	}
	for name, checks := range map[string][]check{
		"it is never renewed": {
			{0, same, alive(40*time.Second, false)}, {39 * time.Second, same, alive(40*time.Second, false)}, {time.Second, same, controlplane.Observation{Dead: true}},
		},
		"it is renewed by a clock that is days ahead, then behind": {
			{0, renew(72 * time.Hour), alive(40*time.Second, false)},
			{30 * time.Second, renew(-72 * time.Hour), alive(70*time.Second, true)},
			{39 * time.Second, same, alive(70*time.Second, true)},
			{time.Second, same, controlplane.Observation{Dead: true, Renewed: true}},
		},
		"a dead holder recovers": {
			{0, same, alive(40*time.Second, false)}, {time.Hour, same, controlplane.Observation{Dead: true}}, {0, renew(time.Second), alive(time.Hour+40*time.Second, true)},
		},
		"somebody notes something on it": {
			{0, same, alive(40*time.Second, false)},
			{20 * time.Second, func(l *coordinationv1.Lease) { l.ResourceVersion, l.Labels = "2", map[string]string{"a": "b"} }, alive(40*time.Second, false)},
		},
		"another one comes in its place": {
			{0, same, alive(40*time.Second, false)}, {20 * time.Second, func(l *coordinationv1.Lease) { l.UID = "2" }, alive(60*time.Second, true)},
		},
		"it claims to be good for ever": {
			{0, lasting(math.MaxInt32), alive(time.Hour, false)}, {time.Hour, same, controlplane.Observation{Dead: true}},
		},
		"it does not say for how long it is good": {
			{0, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }, alive(40*time.Second, false)},
		},
		"it was never renewed": {
			{0, func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }, controlplane.Observation{Dead: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now, lease := start, leaseOf(t, there, start)
			watch := controlplane.NewLeaseWatch(func() time.Time { return now })
			for i, l := range checks {
				now = now.Add(l.after)
				l.change(lease)
				if got := watch.See(lease); got != l.want {
					t.Errorf("check %d: See() = %+v, want %+v", i, got, l.want)
				}
			}
		})
	}
	if got := controlplane.NewLeaseWatch(nil).See(nil); !got.Dead {
		t.Errorf("See(nil) = %+v, want it dead", got)
	}
}

func TestAHostWhoseClockIsAheadTakesNobodysLease(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, wrong := controlplanetest.NewFake(nil), &wall{}
				_, stop := keep(t, fake, policy(there), quiet())
				after(5 * time.Second)
				wrong.step(off)
				p := policy(here)
				p.Now = wrong.now
				p.Heartbeat = func(err error) {
					if errors.Is(err, controlplane.ErrConflict) {
						t.Errorf("Heartbeat(%v), want it to name the holder of the lease", err)
					}
				}
				second, _ := keep(t, fake, p, quiet())
				synctest.Wait()
				var identity *controlplane.IdentityError
				if err := second.Stats().LastError; !errors.As(err, &identity) || !identity.Watching() {
					t.Errorf("LastError at the first check = %v, want that the other holder is watched", err)
				}
				after(10 * time.Minute)
				stats := second.Stats()
				if !errors.As(stats.LastError, &identity) || identity.Watching() || stats.Renewals != 0 {
					t.Errorf("Stats() = %+v, want that the other is known to live, and no renewal", stats)
				}
				stop()
				after(52 * time.Second)
				if stats := second.Stats(); stats.Renewals == 0 || stats.LastError != nil {
					t.Errorf("Stats() after the other has ended = %+v, want the lease taken", stats)
				}
			})
		})
	}
}

// A host that waits for a Lease must not take it when the control plane answers again: its holder
// could not renew it either.
func TestAnOutageProvesNobodyDead(t *testing.T) {
	for name, fault := range map[string]controlplanetest.Fault{
		"it refuses":                   {Err: controlplane.ErrUnavailable},
		"it is silent":                 {Hang: true},
		"it requests a later retry":    {Err: &controlplane.BusyError{After: time.Second, Err: controlplane.ErrUnavailable}},
		"it does not accept who comes": {Err: fmt.Errorf("%w: %w", controlplane.ErrUnavailable, controlplane.ErrUnauthorized)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := controlplanetest.NewFake(nil)
				lease, err := fake.RenewLease(t.Context(), leaseOf(t, there, time.Now()))
				renew := func() {
					if lease, err = fake.RenewLease(t.Context(), controlplane.Renew(lease, time.Now())); err != nil {
						t.Fatal(err)
					}
				}
				keeper, _ := keep(t, fake, policy(here), quiet())
				after(10 * time.Second)
				renew()
				after(15 * time.Second)
				fake.Inject(controlplanetest.Any, fault)
				after(5 * time.Minute)
				fake.Heal()
				after(30 * time.Second) // the waiting host gets an answer first
				renew()
				var identity *controlplane.IdentityError
				if stats := keeper.Stats(); stats.Renewals != 0 || !errors.As(stats.LastError, &identity) || !identity.Renewed {
					t.Errorf("Stats() after an outage = %+v, want the lease left to its holder, which could not renew it", stats)
				}
				after(52 * time.Second)
				if stats := keeper.Stats(); stats.Renewals == 0 {
					t.Errorf("Stats() = %+v, want the lease of one that died taken", stats)
				}
			})
		})
	}
}

func TestTheLeaseOfADeadMachineIsTakenTheMomentItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		lease := leaseOf(t, there, time.Now().Add(-time.Hour))
		if _, err := fake.RenewLease(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		p := policy(here)
		p.Watch = controlplane.NewLeaseWatch(nil)
		_, stop := keep(t, fake, p, quiet())
		after(25 * time.Second)
		stop() // the agent restarts, and with it the watch
		p.Watch = controlplane.NewLeaseWatch(nil)
		keeper, _ := keep(t, fake, p, quiet())
		after(40*time.Second - time.Millisecond)
		if n := keeper.Stats().Renewals; n != 0 {
			t.Errorf("renewals before the lease was watched for 40 s = %d, want 0", n)
		}
		after(time.Millisecond)
		if stats := keeper.Stats(); stats.Renewals != 1 || stats.Expired(41*time.Second) != nil {
			t.Errorf("Stats() after 40 s = %+v, want it renewed", stats)
		}
	})
}
