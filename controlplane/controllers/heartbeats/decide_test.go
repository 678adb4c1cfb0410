package heartbeats_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/heartbeats"
	"hostler.io/hostler/controlplane/store"
)

// own returns a value that the server has stored; no setting if it is empty.
func own(value string) store.Setting { return store.Setting{Value: value, Own: value != ""} }

func persons(value string) store.Setting { return store.Setting{Value: value} }

func TestDecisions(t *testing.T) {
	const nothing = "-"
	for name, c := range map[string]struct {
		hosts   int
		most    float64
		setting store.Setting
		want    string // next value; empty for no change
		reason  string
	}{
		"an empty fleet":                                     {0, 300, own(""), nothing, "enough for heartbeats.maxPerSecond (300)"},
		"the default is enough":                              {1000, 300, own(""), nothing, "enough"},
		"the default is just enough":                         {3000, 300, own(""), nothing, "enough"},
		"one host more":                                      {3001, 300, own(""), "50s", "3001 hosts renew 300.1 Leases a second, more than heartbeats.maxPerSecond (300)"},
		"and one less again":                                 {3000, 300, own("50s"), nothing, "enough"},
		"a large fleet":                                      {10000, 300, own(""), "2m20s", "10000 hosts renew 1000.0 Leases a second"},
		"a whole number of minutes":                          {9000, 300, own(""), "2m", "more than"},
		"it has what it needs":                               {10000, 300, own("2m20s"), nothing, "enough"},
		"it has grown":                                       {11000, 300, own("2m20s"), "2m30s", "11000 hosts renew 314.3 Leases a second"},
		"it has shrunk a little":                             {8000, 300, own("2m20s"), nothing, "enough"},
		"a shorter one is at 80%":                            {7800, 300, own("2m20s"), nothing, "enough"},
		"a shorter one is below 80%":                         {7799, 300, own("2m20s"), "2m10s", "7799 hosts with Leases of 2m10s renew 240.0 a second, less than 80%"},
		"it has shrunk to a part":                            {1000, 300, own("2m20s"), "", "1000 hosts with Leases of 40s renew 100.0 a second, less than 80%"},
		"all hosts have left":                                {0, 300, own("2m20s"), "", "less than 80%"},
		"more than the longest Lease is enough for":          {1_000_000, 300, own(""), "1h", "more than"},
		"the longest Lease, and still more":                  {1_000_000, 300, own("1h"), nothing, "no Lease lasts longer than 1h"},
		"the longest Lease in other words":                   {1_000_000, 300, own("1h0m0s"), nothing, "no Lease lasts longer than 1h"},
		"a rate below one":                                   {3, 0.1, own(""), "2m", "3 hosts renew 0.3 Leases a second, more than heartbeats.maxPerSecond (0.1)"},
		"the rate was lowered":                               {1000, 10, own("40s"), "6m40s", "more than"},
		"the rate was raised":                                {10000, 3000, own("2m20s"), "", "less than 80%"},
		"a person has set it":                                {10000, 300, persons("1m"), nothing, `a person has set lease-duration to "1m"`},
		"a person has set it longer":                         {1000, 300, persons("10m"), nothing, "a person has set"},
		"a person has set what is no duration":               {10000, 300, persons("soon"), nothing, `a person has set lease-duration to "soon"`},
		"a person has removed what the server had set":       {10000, 300, store.Setting{Version: "7"}, "2m20s", "more than"},
		"switched off":                                       {10000, 0, own(""), nothing, "maxPerSecond is 0"},
		"switched off, with a value of the server":           {10, 0, own("2m20s"), nothing, "maxPerSecond is 0"},
		"a value of the server that somebody has made wrong": {10, 300, own("x"), "", "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			d := heartbeats.Decide(heartbeats.Facts{Hosts: c.hosts, Setting: c.setting, MaxPerSecond: c.most})
			got := nothing
			for _, change := range d.Now {
				got = change.Value
				if change.Before != c.setting {
					t.Errorf("before = %+v, want %+v", change.Before, c.setting)
				}
			}
			if got != c.want || !strings.Contains(d.Reason, c.reason) {
				t.Errorf("Decide() = %q, because %q, want %q, because %q", got, d.Reason, c.want, c.reason)
			}
		})
	}
}

// TestNoFleetRenewsMoreThanItMayOrChangesForAFew lets fleets grow and shrink at random.
func TestNoFleetRenewsMoreThanItMayOrChangesForAFew(t *testing.T) {
	changes, longest := 0, 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 4))
		most := []float64{0.1, 1, 7, 300, 1000}[random.IntN(5)]
		hosts, setting := random.IntN(int(most*1000)+10), own("")
		changedAt, longer := 0, false // the last change
		for range 500 {
			switch random.IntN(10) {
			case 0: // a few hosts more or less
				hosts = max(hosts+random.IntN(hosts/3+2)-hosts/6, 0)
			default:
				hosts = max(hosts+random.IntN(3)-1, 0)
			}
			d := heartbeats.Decide(heartbeats.Facts{Hosts: hosts, Setting: setting, MaxPerSecond: most})
			if len(d.Now) > 0 {
				changes++
				next := d.Now[0].Value
				was := longer
				if longer = d.PerSecond > most; longer != was && changedAt > 0 && abs(hosts-changedAt) < hosts/6 {
					t.Fatalf("seed %d: the setting is changed at %d hosts, and back to %q at %d", seed, changedAt, next, hosts)
				}
				setting, changedAt = own(next), hosts
			}
			after := heartbeats.Decide(heartbeats.Facts{Hosts: hosts, Setting: setting, MaxPerSecond: most})
			if len(after.Now) > 0 {
				t.Fatalf("seed %d: after %q follows %q at once, with %d hosts", seed, setting.Value, after.Now[0].Value, hosts)
			}
			if after.Lease%(10*time.Second) != 0 || after.Lease < heartbeats.DefaultLease || after.Lease > controlplane.LongestLease {
				t.Fatalf("seed %d: Leases last %v", seed, after.Lease)
			}
			switch {
			case after.Lease == controlplane.LongestLease:
				longest++
			case after.PerSecond > most:
				t.Fatalf("seed %d: %d hosts renew %v Leases a second, want at most %v", seed, hosts, after.PerSecond, most)
			}
			if shorter := after.Lease - 10*time.Second; shorter >= heartbeats.DefaultLease {
				if rate := float64(hosts) * controlplane.LeaseRenewals / shorter.Seconds(); rate < 0.8*most*(1-1e-9) {
					t.Fatalf("seed %d: Leases of %d hosts last %v, although %v would be below 80%%", seed, hosts, after.Lease, shorter)
				}
			}
		}
	}
	if changes < 1000 {
		t.Errorf("only %d changes: the test shows little", changes)
	}
	t.Logf("%d changes, %d times the longest Lease", changes, longest)
}

func abs(n int) int { return max(n, -n) }

func ExampleChange_Action() {
	fmt.Println(heartbeats.Change{Value: "2m"}.Action())
	fmt.Println(heartbeats.Change{}.Action())
	// Output:
	// let Leases last 2m
	// remove the setting: Leases last 40s
}
