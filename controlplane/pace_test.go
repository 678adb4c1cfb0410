package controlplane_test

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// applied records the durations that become effective.
type applied struct {
	mu  sync.Mutex
	all []time.Duration
}

func (a *applied) apply(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, d)
}

func (a *applied) list() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all)
}

func TestALeaseHasTheRequestedDuration(t *testing.T) {
	const node, all = controlplane.RequestedForNode, controlplane.RequestedForAll
	type step struct {
		by   controlplane.Requester
		text string
		want time.Duration // effective duration
	}
	for name, steps := range map[string][]step{
		"by the Node":                    {{node, "2m", 2 * time.Minute}, {node, "90s", 90 * time.Second}, {node, "", 40 * time.Second}},
		"by the control plane":           {{all, "1h", time.Hour}, {all, "", 40 * time.Second}},
		"by both, and the Node's counts": {{all, "10m", 10 * time.Minute}, {node, "2m", 2 * time.Minute}, {all, "20m", 2 * time.Minute}, {node, "", 20 * time.Minute}},
		"as it is configured anyway":     {{node, "40s", 40 * time.Second}, {node, "40000ms", 40 * time.Second}},
		"with invalid values":            {{node, "soon", 40 * time.Second}, {all, "2", 40 * time.Second}, {node, "2m", 2 * time.Minute}},
		"too short, too long":            {{node, "39s", 40 * time.Second}, {node, "1h1s", 40 * time.Second}, {node, "-2m", 40 * time.Second}},
		"not in whole seconds":           {{node, "90500ms", 40 * time.Second}},
		"and a slip changes nothing":     {{all, "10m", 10 * time.Minute}, {all, "20 minutes", 10 * time.Minute}, {all, "", 40 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			var to applied
			pacing := controlplane.NewPacing(40*time.Second, "take it off", to.apply, quiet())
			want, last := []time.Duration{}, 40*time.Second
			for _, s := range steps {
				pacing.Request(s.by, s.text)
				pacing.Request(s.by, s.text) // repeated, because it is read again and again
				if got := pacing.Pace().Duration; got != s.want {
					t.Errorf("Pace() after %v requested %q = %v, want %v", s.by, s.text, got, s.want)
				}
				if s.want != last {
					want, last = append(want, s.want), s.want
				}
			}
			if got := to.list(); !slices.Equal(got, want) {
				t.Errorf("applied %v, want %v", got, want)
			}
		})
	}
}

func TestAHostKeepsALeaseThatIsLongerThanThatOfAllHosts(t *testing.T) {
	var to applied
	pacing := controlplane.NewPacing(2*time.Minute, "take it off", to.apply, quiet())
	for _, s := range []struct {
		all  string
		want controlplane.Pace
	}{
		{"10m", controlplane.Pace{Duration: 10 * time.Minute, By: "the control plane's setting for all hosts"}},
		{"50s", controlplane.Pace{Duration: 2 * time.Minute}}, // a server has chosen it for the other hosts
		{"3m", controlplane.Pace{Duration: 3 * time.Minute, By: "the control plane's setting for all hosts"}},
		{"40s", controlplane.Pace{Duration: 2 * time.Minute}},
	} {
		pacing.Request(controlplane.RequestedForAll, s.all)
		if got := pacing.Pace(); !reflect.DeepEqual(got, s.want) {
			t.Errorf("Pace() with %s for all hosts = %+v, want %+v", s.all, got, s.want)
		}
	}
	// No server chooses this duration.
	pacing.Request(controlplane.RequestedForAll, "39s")
	if faults := pacing.Pace().Faults; len(faults) != 1 || !strings.Contains(faults[0].Message, "shorter than this host's lease.duration 2m0s") {
		t.Errorf("Pace() with 39s for all hosts has the faults %+v, want that it is too short", faults)
	}
}

func TestAnInvalidLeaseDurationIsReported(t *testing.T) {
	for text, says := range map[string]string{
		"soon":                    "not a duration",
		"39s":                     "lease.duration 40s",
		"2h":                      "longer than 1h0m0s",
		"90500ms":                 "not a whole number of seconds",
		strings.Repeat("1m", 500): "longer than 1h0m0s",
		"\x00\n":                  "not a duration",
	} {
		var log journal
		pacing := controlplane.NewPacing(40*time.Second, "take it off", func(d time.Duration) { t.Errorf("%q is applied as %v", text, d) }, log.logger())
		for range 3 {
			pacing.Request(controlplane.RequestedForNode, text)
		}
		faults := pacing.Pace().Faults
		if len(faults) != 1 || !strings.Contains(faults[0].Message, says) || len(faults[0].Message) > 300 || faults[0].Fix != "take it off" {
			t.Errorf("Pace() of %.20q has the faults %+v, want one that says %q, and the fix", text, faults, says)
		}
		if n := log.count("WARN"); n != 1 {
			t.Errorf("%.20q is warned of %d times, want once", text, n)
		}
		pacing.Request(controlplane.RequestedForNode, "")
		if faults := pacing.Pace().Faults; len(faults) != 0 {
			t.Errorf("Pace() has the faults %v once nothing is requested, want none", faults)
		}
	}
}

func FuzzRequestedPacesAreValidOrReported(f *testing.F) {
	for _, text := range []string{"", "2m", "1h", "40s", "39s", "soon", "9223372036s", "-1ns", "1e9h", "1.5m"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pacing := controlplane.NewPacing(40*time.Second, "take it off", func(time.Duration) {}, quiet())
		pacing.Request(controlplane.RequestedForAll, text)
		p := pacing.Pace()
		if p.Duration < 40*time.Second || p.Duration > time.Hour || p.Duration%time.Second != 0 {
			t.Errorf("Pace() of %q = %v, want whole seconds from 40 s to an hour", text, p.Duration)
		}
		if reported := len(p.Faults) > 0; reported == (p.By != "" || text == "") {
			t.Errorf("Pace() of %q = %+v, want it either effective or reported", text, p)
		}
	})
}

func TestTheControlPlaneIsFollowedThroughOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var to applied
		var log journal
		fake := controlplanetest.NewFake(nil)
		pacing := controlplane.NewPacing(40*time.Second, "take it off", to.apply, log.logger())
		var mu sync.Mutex
		var last error
		stop := run(t, func(ctx context.Context) error {
			return pacing.Follow(ctx, fake, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				last = err
			})
		})
		failing := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return last != nil
		}
		fake.RequestPace("2m")
		synctest.Wait()
		fake.Inject(controlplanetest.WatchPace, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		after(10 * time.Minute)
		if !failing() || pacing.Pace().Duration != 2*time.Minute {
			t.Errorf("in an outage: failing %t, Pace() = %v, want a report, and the last requested duration effective", failing(), pacing.Pace().Duration)
		}
		if n := fake.Calls(controlplanetest.WatchPace); n < 10 || n > 200 {
			t.Errorf("%d attempts in ten minutes, want some, and no more than every few seconds", n)
		}
		fake.RequestPace("3m")
		fake.Heal()
		after(time.Minute)
		if failing() || pacing.Pace().Duration != 3*time.Minute {
			t.Errorf("after an outage: failing %t, Pace() = %v, want the duration that was requested meanwhile", failing(), pacing.Pace().Duration)
		}
		if log.count("WARN") != 1 || log.count("INFO") != 3 {
			t.Errorf("log lines = %d warnings, %d infos, want one of the outage's begin, one of its end, and one a change", log.count("WARN"), log.count("INFO"))
		}
		stop()

		fake.Inject(controlplanetest.WatchPace, controlplanetest.Fault{Err: controlplane.ErrForbidden})
		asked := fake.Calls(controlplanetest.WatchPace)
		run(t, func(ctx context.Context) error {
			return pacing.Follow(ctx, fake, func(err error) {
				if err != nil {
					t.Errorf("Follow() reports %v, want nil: a host without the right to read has no pace", err)
				}
			})
		})
		after(3 * time.Hour)
		if n := fake.Calls(controlplanetest.WatchPace) - asked; n < 2 || n > 4 {
			t.Errorf("%d attempts in three hours where it is forbidden, want one in one or two hours", n)
		}
	})
}

// gaps returns the intervals between stored renewals.
func gaps(t *testing.T, fake *controlplanetest.Fake, keeper *controlplane.LeaseKeeper, total time.Duration) []time.Duration {
	t.Helper()
	var list []time.Duration
	last := keeper.Stats()
	for end := time.Now().Add(total); time.Now().Before(end); {
		after(100 * time.Millisecond)
		if now := keeper.Stats(); now.Renewals != last.Renewals {
			list = append(list, now.LastRenewed.Sub(last.LastRenewed))
			last = now
		}
	}
	return list
}

func TestALongerLeaseIsStoredWithTheNextRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		keeper, _ := keep(t, fake, policy(here), quiet())
		after(33 * time.Second)
		before := fake.Calls(controlplanetest.RenewLease)
		keeper.SetPace(20 * time.Minute)
		after(time.Second)
		if n := fake.Calls(controlplanetest.RenewLease); n != before || *stored(t, fake).Spec.LeaseDurationSeconds != 40 {
			t.Errorf("%d renewals a second after a longer lease was requested, want none before it is due", n-before)
		}
		after(11 * time.Second)
		if d := *stored(t, fake).Spec.LeaseDurationSeconds; d != 1200 {
			t.Errorf("the lease is good for %d s after the next renewal, want 1200", d)
		}
		list := gaps(t, fake, keeper, 4*time.Hour)
		if first := list[0]; first < 9*time.Second || first > 5*time.Minute {
			t.Errorf("the renewal after that came after %v, want it at a random moment of the interval", first)
		}
		for _, gap := range list[1:] {
			if gap < 299*time.Second || gap > 313*time.Second {
				t.Errorf("a renewal came %v after the one before, want at most 5 min and 4 %% more", gap)
			}
		}
		if stats := keeper.Stats(); stats.Expired(40*time.Second) != nil {
			t.Errorf("Expired() = %v, want it to use the lease's own duration", stats.Expired(40*time.Second))
		}
	})
}

func TestAShorterLeaseIsStoredSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		keeper, _ := keep(t, fake, policy(here), quiet())
		keeper.SetPace(time.Hour)
		after(2 * time.Hour)
		for _, shorter := range []time.Duration{2 * time.Minute, 40 * time.Second} {
			interval := shorter / 4
			keeper.SetPace(shorter)
			after(interval)
			if d := *stored(t, fake).Spec.LeaseDurationSeconds; time.Duration(d)*time.Second != shorter {
				t.Errorf("the lease lasts %d s within an interval after %v was requested", d, shorter)
			}
			for _, gap := range gaps(t, fake, keeper, 10*time.Minute) {
				if most := interval + interval/20 + 100*time.Millisecond; gap > most {
					t.Errorf("a renewal came %v after the one before, want at most %v", gap, most)
				}
			}
		}
		keeper.SetPace(time.Hour) // the request is removed before it is stored
		keeper.SetPace(40 * time.Second)
		for _, gap := range gaps(t, fake, keeper, time.Minute) {
			if gap > 10500*time.Millisecond {
				t.Errorf("a renewal came %v after the one before, want the pace as it was", gap)
			}
		}
	})
}

// Whatever the changes and failures, an observer of the Lease never sees it expire.
func TestNoChangeOfPaceLeavesAGap(t *testing.T) {
	for seed, faults := range []controlplanetest.Fault{{}, {Err: controlplane.ErrUnavailable, Times: 3}, {LoseAnswer: true, Times: 2}, {Conflict: true, Times: 2}} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := controlplanetest.NewFake(nil)
				keeper, _ := keep(t, fake, policy(here), quiet())
				watch := controlplane.NewLeaseWatch(nil)
				synctest.Wait()
				for i, d := range []time.Duration{2 * time.Minute, time.Hour, 90 * time.Second, 40 * time.Second, 30 * time.Minute, 40 * time.Second} {
					keeper.SetPace(d)
					if i%2 == seed%2 {
						fake.Inject(controlplanetest.RenewLease, faults)
					}
					for range 600 {
						after(time.Duration(i+1) * 500 * time.Millisecond)
						if watch.See(stored(t, fake)).Dead {
							t.Fatalf("the lease has ended while the pace was changing to %v", d)
						}
					}
				}
			})
		})
	}
}

// Hosts that get a new interval at the same time spread over that interval.
func TestHostsThatGetANewIntervalTogetherDoNotRenewTogether(t *testing.T) {
	const hosts, pace = 200, 20 * time.Minute
	for name, c := range map[string]struct{ from, to time.Duration }{
		"to come less often": {40 * time.Second, pace},
		"to come more often": {pace, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var keepers []*controlplane.LeaseKeeper
				for i := range hosts {
					p := policy(here)
					p.Node = fmt.Sprintf("n%d", i)
					keeper, _ := keep(t, controlplanetest.NewFake(nil), p, quiet())
					keeper.SetPace(c.from)
					keepers = append(keepers, keeper)
				}
				after(6 * c.from) // about two dozen renewals of each host
				before := make([]uint64, hosts)
				for i, k := range keepers {
					before[i] = k.Stats().Renewals
					k.SetPace(c.to)
				}
				if c.to > c.from { // the first ones have the old pace
					after(11 * time.Second)
					for i, k := range keepers {
						before[i] = k.Stats().Renewals
					}
				}
				interval := c.to / 4
				busiest, all := 0, 0
				for range 10 {
					after(interval / 10)
					n := 0
					for i, k := range keepers {
						now := k.Stats().Renewals
						n, before[i] = n+int(now-before[i]), now
					}
					busiest, all = max(busiest, n), all+n
				}
				if all < hosts/2 || busiest > hosts/3 {
					t.Errorf("%d of %d renewals in an interval came in one tenth of it, want them spread", busiest, all)
				}
			})
		})
	}
}

// In a long outage, a fleet with long Leases does not retry every few seconds.
func TestALongLeaseIsTriedAgainLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		keeper, _ := keep(t, fake, policy(here), quiet())
		keeper.SetPace(time.Hour)
		after(3 * time.Hour)
		fake.Inject(controlplanetest.RenewLease, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		after(30 * time.Minute)
		before := fake.Calls(controlplanetest.RenewLease)
		after(2 * time.Hour)
		if n := fake.Calls(controlplanetest.RenewLease) - before; n < 20 || n > 33 {
			t.Errorf("%d attempts in two hours, want one in four to five minutes", n)
		}
		if keeper.Stats().Expired(40*time.Second) == nil {
			t.Error("Expired() = nil after two hours without a renewal, want an error")
		}
		fake.Heal()
		after(5 * time.Minute)
		if err := keeper.Stats().Expired(40 * time.Second); err != nil {
			t.Errorf("Expired() = %v five minutes after the outage, want it renewed", err)
		}
	})
}

// flicker is a control plane that requests another duration all the time.
type flicker struct{ sent int }

func (f *flicker) WatchPace(ctx context.Context, seen chan<- string) error {
	for {
		select {
		case seen <- fmt.Sprintf("%ds", 60+f.sent):
			if f.sent++; f.sent == 1000 {
				<-ctx.Done()
				return ctx.Err()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestAControlPlaneDoesNotSetThePaceOfItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var to applied
		p := controlplane.NewPacing(controlplane.DefaultLease, "", to.apply, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
		defer cancel()
		_ = p.Follow(ctx, &flicker{}, func(error) {}) // returns when ctx ends
		if n := len(to.list()); n != 6 {
			t.Errorf("applied %d durations in 5 seconds, want one a second", n)
		}
	})
}
