//go:build integration

package fleet_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/test/bench/fleet"
)

// patience limits waits for events that take moments on an idle machine.
const patience = 5 * time.Minute

// TestASmallFleetIsSeenFromTheStore runs the parts of the benchmark: all agents join and renew, the
// store shows it, and the load is measured. It checks no durations.
func TestASmallFleetIsSeenFromTheStore(t *testing.T) {
	for _, k := range kinds() {
		agents := map[string]int{"etcd": 50, "kube-apiserver": 10}[k.name]
		t.Run(k.name, func(t *testing.T) {
			d := k.open(t)
			t.Cleanup(func() { d.end(t) })
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			leases, err := fleet.Watch(ctx, d.store, d.leases)
			check(t, err)
			before, err := d.meter.Read(ctx)
			check(t, err)
			f := fleet.Start(ctx, fleet.Options{
				Agents: agents, Pace: fleet.Pace{Duration: time.Minute, Interval: time.Second}, Report: 3 * time.Second,
				Spread: time.Second, Template: host(t), Connect: d.connect,
			})
			defer f.Close()
			if err := f.Joined(ctx); err != nil {
				t.Fatal(err)
			}
			leases.Begin()
			check(t, leases.Await(ctx, func(k fleet.Kept) bool { return k.Leases == agents && k.Least >= 2 }))
			kept, err := leases.Kept()
			check(t, err)
			if len(kept.Gone) > 0 || len(kept.Gaps) != agents || kept.Gaps[0] <= 0 {
				t.Errorf("Kept() = %+v, want %d leases, with gaps, and none gone", kept, agents)
			}
			if took := f.Took(); len(took) < 2*agents || took[0] <= 0 {
				t.Errorf("Took() = %v, want at least %d renewals", took, 2*agents)
			}
			after, err := d.meter.Read(ctx)
			check(t, err)
			if puts := after.Puts - before.Puts; puts < float64(3*agents) {
				t.Errorf("the store counts %v puts, want at least the %d of 3 renewals each", puts, 3*agents)
			}
			for process := range d.meter.Processes {
				if after.CPU[process] <= 0 || after.CPU[process] < before.CPU[process] || after.RSS[process] <= 0 {
					t.Errorf("%s has used %v s, then %v s, and %v bytes; want more", process, before.CPU[process], after.CPU[process], after.RSS[process])
				}
			}
			if after.Size <= 0 || after.Used <= 0 || after.Syncs.Since(before.Syncs).Quantile(0.5) <= 0 {
				t.Errorf("Read() = %+v, want a database with a size and a log that is synced", after)
			}
			t.Logf("calls that failed: %s", f.Failures()) // some calls fail on a busy machine
		})
	}
}

// TestALostHostIsSeenToBeGone checks that the judge finds a lost host.
func TestALostHostIsSeenToBeGone(t *testing.T) {
	d := openEtcd(t)
	t.Cleanup(func() { d.end(t) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	leases, err := fleet.Watch(ctx, d.store, d.leases)
	check(t, err)
	f := fleet.Start(ctx, fleet.Options{
		Agents: 3, Pace: fleet.Pace{Duration: 10 * time.Second, Interval: time.Second}, Report: time.Hour,
		Template: host(t), Connect: d.connect,
	})
	defer f.Close()
	check(t, f.Joined(ctx))
	f.Lose(1)
	// A gap is seen before it ends.
	check(t, leases.Await(ctx, func(k fleet.Kept) bool { return fleet.Quantile(k.Gaps, 1) > 3*time.Second }))
	// On a busy machine, other hosts may be lost, too.
	check(t, leases.Await(ctx, func(k fleet.Kept) bool { return slices.Contains(k.Gone, fleet.Name(1)) }))
}
