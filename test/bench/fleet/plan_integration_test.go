//go:build integration

package fleet_test

import (
	"math"
	"testing"
	"time"

	"hostler.io/hostler/test/bench/fleet"
)

func TestWhatThereIsNoSpaceForIsStoodInForByShorterIntervals(t *testing.T) {
	k := kind{name: "etcd", connections: 1}
	tried := func(agents int, pace fleet.Pace, held bool) result {
		return result{step: step{agents, pace, 0}, held: held, values: map[string]float64{"memory: fleet": 3000, "memory: of the control plane": 2000}}
	}
	longer := fleet.Pace{Duration: 2 * time.Minute, Interval: 30 * time.Second}
	results := []result{tried(5_000, standard(), true), tried(10_000, standard(), true), tried(10_000, longer, true), tried(40_000, standard(), false)}
	for name, c := range map[string]struct {
		limits limits
		n      int
		want   string
		late   time.Duration
	}{
		"there is room":  {limits{20_000, 10e9}, 20_000, "20,000", 40 * time.Second},
		"no connections": {limits{19_999, 10e9}, 20_000, "10,000 (40s/5s)", 35 * time.Second},
		"no memory":      {limits{40_000, 9e9}, 40_000, "10,000 (40s/2.5s)", 32500 * time.Millisecond},
	} {
		got, why := c.limits.step(k, results, c.n)
		if got.String() != c.want || got.late() != c.late || got.represents() != c.n || (why == "") != (got.agents == c.n) {
			t.Errorf("step() where %s = %v for %d, late after %v, %q; want %s for %d, late after %v", name, got, got.represents(), got.late(), why, c.want, c.n, c.late)
		}
	}
}

func TestTheSearchClosesInOnWhatIsCarried(t *testing.T) {
	for limit, want := range map[int][2]int{
		13_000:    {12_500, 15_000},
		19_999:    {17_500, 20_000},
		5_000:     {5_000, 6_250},
		1_000_000: {20_000, 0}, // at most two doublings are requested
	} {
		carries, fails := search(5_000, 2, func(n int) bool { return n <= limit })
		if got := [2]int{carries, fails}; got != want {
			t.Errorf("search() where %d are carried = %v, want %v", limit, got, want)
		}
	}
}

func TestSlopesDistinguishAgentsFromRenewals(t *testing.T) {
	longer := fleet.Pace{Duration: 2 * time.Minute, Interval: 30 * time.Second}
	steps := []step{{500, standard(), 0}, {1000, standard(), 0}, {5000, standard(), 0}, {5000, longer, 0}}
	made := func(steps []step, of func(s step) float64) (all []result) {
		for _, s := range steps {
			all = append(all, result{step: s, held: true, values: map[string]float64{"history": of(s)}})
		}
		return append(all, result{step: step{agents: 40_000, pace: standard()}, values: map[string]float64{"history": 1}}) // this step failed
	}
	both := func(s step) float64 { return 3 + 2*perAgent().of(s) + 5*perRenewal().of(s) }
	renewals := func(s step) float64 { return 3 - 0.1*perAgent().of(s) + 5*perRenewal().of(s) }
	want := step{agents: 100_000, pace: fleet.Pace{Duration: 20 * time.Minute, Interval: 5 * time.Minute}}
	f := prediction{name: "history", renewals: true}

	s, atAnyPace, ok := slopeOf(made(steps, both), f)
	if got := s.at(want); !ok || !atAnyPace || math.Abs(got-both(want)) > 1e-6 || s.off > 1e-6 {
		t.Errorf("slopeOf() foretells %v, at any pace: %v, want %v, true", got, atAnyPace, both(want))
	}
	if s, _, ok := slopeOf(made(steps, renewals), f); !ok || len(s.terms) != 2 || s.terms[1].text != perRenewal().text {
		t.Errorf("slopeOf() what agents lessen = %v, want what renewals make of it alone", s)
	}
	if s, atAnyPace, ok := slopeOf(made(steps[:3], both), f); !ok || atAnyPace || math.Abs(s.at(steps[2])-both(steps[2])) > 1e-6 {
		t.Errorf("slopeOf() steps of one pace = %v, at any pace: %v, want one for that pace", s, atAnyPace)
	}
	if _, _, ok := slopeOf(made(steps[:1], both), f); ok {
		t.Error("slopeOf() a single step = a slope, want none")
	}
}
