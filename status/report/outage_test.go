package report

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/status"
)

const (
	leaseDuration = 40 * time.Second
	leaseInterval = 10 * time.Second
	maxQueued     = 1000 // Events
)

// renewingLease renews a lease, publishes Events and watches the Node until the returned function
// is called.
func (d *desk) renewingLease(t *testing.T, client controlplane.Client, now func() time.Time) (*controlplane.LeaseKeeper, func()) {
	t.Helper()
	keeper, err := controlplane.NewLeaseKeeper(client, controlplane.LeasePolicy{
		Node: nodeName, Holder: controlplane.Identity{MachineID: d.machine.MachineID, SystemUUID: d.machine.SystemUUID},
		Duration: leaseDuration, Interval: leaseInterval, Now: now,
	}, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = keeper.Run(ctx) })
	done.Go(func() { _ = d.o.Recorder.Run(ctx) })
	done.Go(func() { _ = d.Run(ctx, func(error) {}) })
	done.Go(func() { _ = d.Watch(ctx, d.client, func(error) {}) })
	stop := sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	synctest.Wait()
	return keeper, stop
}

func TestAnHourWithoutAControlPlane(t *testing.T) {
	for name, c := range map[string]struct {
		fault  controlplanetest.Fault
		resume time.Duration // calls that hang end by their deadline
	}{
		"it refuses": {controlplanetest.Fault{Err: controlplane.ErrUnavailable}, leaseInterval},
		"it hangs":   {controlplanetest.Fault{Hang: true}, leaseInterval + WriteTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				keeper, _ := d.renewingLease(t, d.client, nil)
				time.Sleep(10 * time.Minute)
				d.client.Inject(controlplanetest.Any, c.fault)
				var recorded []string
				var goroutines []int
				for i := range 1440 {
					message := fmt.Sprint("event ", i)
					recorded = append(recorded, message)
					d.event(corev1.EventTypeNormal, "Test", message)
					time.Sleep(2500 * time.Millisecond)
					goroutines = append(goroutines, goruntime.NumGoroutine())
				}
				if early, late := slices.Max(goroutines[:200]), slices.Max(goroutines[1240:]); late > early+2 { // their starts and ends are random
					t.Errorf("%d goroutines at the beginning of the outage, %d at its end, want no more", early, late)
				}
				if n := d.o.Recorder.Stats(); n.Queued > maxQueued || n.Queued < maxQueued-1 {
					t.Errorf("Stats() = %+v, want as many Events queued as may be, and no more", n)
				}
				if s := keeper.Stats(); s.Expired(leaseDuration) == nil || s.ConsecutiveFailures < 200 {
					t.Errorf("Stats() = %+v, want the lease tried all the time", s)
				}

				d.client.Heal()
				ended := time.Now()
				d.set(func() { d.guard.Reason = "news of the outage" })
				time.Sleep(c.resume)
				synctest.Wait()
				if s := keeper.Stats(); s.Expired(leaseDuration) != nil || s.LastRenewed.Before(ended) {
					t.Errorf("the lease was renewed %v after the end of the outage, want it renewed", s.LastRenewed.Sub(ended))
				}
				if own := d.stored(t).Status.Conditions; !slices.ContainsFunc(own, func(c corev1.NodeCondition) bool {
					return c.Type == status.ShutdownProtected && c.Message == "a shutdown waits for the pods to stop: news of the outage"
				}) {
					t.Errorf("the stored conditions are %+v, want the news within %v", own, c.resume)
				}
				if c := ready(d.stored(t)); c.Status != corev1.ConditionTrue {
					t.Errorf("Ready = %+v, want it True", c)
				}
				var published []string
				events, err := d.client.Events(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range events {
					if e.Reason == "Test" {
						published = append(published, e.Message)
					}
				}
				if n := len(published); n < maxQueued-20 || !slices.Equal(published, recorded[len(recorded)-n:]) {
					t.Errorf("%d Events published, the first %q, want the latest %d in their order", n, published[:min(3, n)], maxQueued)
				}
			})
		})
	}
}

// moments records when each status is written.
type moments struct {
	*controlplanetest.Fake
	at *[]time.Time
	mu *sync.Mutex
}

func (m moments) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	stored, err := m.Fake.UpdateStatus(ctx, node)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		*m.at = append(*m.at, time.Now())
	}
	return stored, err
}

func TestAFleetDoesNotReturnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts = 16
		var mu sync.Mutex
		var first, again []time.Time
		var fleet []*desk
		for range hosts {
			d := newDesk(t)
			d.client.Inject(controlplanetest.Any, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
			d.start(t)
			fleet = append(fleet, d)
		}
		time.Sleep(2 * time.Minute)
		ended := time.Now()
		for _, d := range fleet {
			_, release, err := d.turn.take(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			d.o.Client = moments{d.client, &first, &mu}
			release()
			d.client.Heal()
		}
		time.Sleep(fleet[0].o.Update)
		synctest.Wait()
		check := func(what string, at []time.Time, within time.Duration, atOnce int) {
			t.Helper()
			seconds := map[time.Duration]int{}
			for _, a := range at {
				seconds[a.Sub(ended).Truncate(within/10)]++
			}
			if len(at) != hosts {
				t.Errorf("%s: %d writes of %d hosts within %v", what, len(at), hosts, within)
			}
			for second, n := range seconds {
				if n > atOnce {
					t.Errorf("%s: %d of %d hosts write %v after the outage, want them spread", what, n, hosts, second)
				}
			}
		}
		check("the first write", first, fleet[0].o.Update, 10)
		ended = time.Now()
		for _, d := range fleet {
			_, release, err := d.turn.take(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			d.o.Client = moments{d.client, &again, &mu}
			release()
		}
		time.Sleep(fleet[0].o.Rewrite + fleet[0].o.Update)
		synctest.Wait()
		again = again[:min(len(again), hosts)]
		check("the next write", again, fleet[0].o.Rewrite, 10)
	})
}

// wall is a wall clock that a test can set.
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

// renewals records each renewTime that is stored.
type renewals struct {
	controlplane.Client
	mu    *sync.Mutex
	times *[]time.Time // guarded by mu
}

func (r renewals) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	stored, err := r.Client.RenewLease(ctx, lease)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		*r.times = append(*r.times, stored.Spec.RenewTime.Time)
	}
	return stored, err
}

func TestTheClockMayBeSteppedInBothDirections(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		clock, client := &wall{}, renewals{d.client, &sync.Mutex{}, &[]time.Time{}}
		w := d.witnessed()
		stop := func() {}
		var transitions []string
		for _, step := range []time.Duration{0, time.Hour, -time.Hour, -time.Hour, time.Hour} {
			for _, restart := range []bool{true, false} {
				if restart { // just before the step
					stop()
					transitions = append(transitions, d.counted...)
					next := d.again(t, "one")
					next.o.Client, next.o.Now = w, clock.now
					d = next
					_, stop = d.renewingLease(t, client, clock.now)
					time.Sleep(time.Minute)
					clock.step(step)
				}
				time.Sleep(15 * time.Minute)
				synctest.Wait()
			}
			stop() // one that starts just after the step
			transitions = append(transitions, d.counted...)
			next := d.again(t, "one")
			next.o.Client, next.o.Now = w, clock.now
			d = next
			_, stop = d.renewingLease(t, client, clock.now)
			time.Sleep(15 * time.Minute)
		}
		stop()
		client.mu.Lock()
		defer client.mu.Unlock()
		times := *client.times
		if len(times) < 1000 {
			t.Errorf("the lease was renewed %d times, want it renewed all the time", len(times))
		}
		for i := range times[1:] {
			if !times[i+1].After(times[i]) {
				t.Fatalf("renewTime %v follows %v, want it never to go back", times[i+1], times[i])
			}
		}
		if r := slices.Compact(slices.Clone(w.ready)); !slices.Equal(r, []string{status.ReasonHostReady}) {
			t.Errorf("the control plane has seen Ready as %v, want no flap", r)
		}
		if n := len(slices.DeleteFunc(append(transitions, d.counted...), func(c string) bool { return c != "Ready=True" })); n != 1 {
			t.Errorf("Ready turned True %d times, want once", n)
		}
	})
}
