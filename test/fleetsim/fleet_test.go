//go:debug randseednop=0
package fleetsim

import (
	"encoding/json"
	oldrand "math/rand"
	"os"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"
)

// simulateSeeded makes a run with random numbers of its own: those of crypto/rand, and of math/rand, which
// client libraries use for jitter.
func simulateSeeded(t *testing.T, p plan) outcome {
	cryptotest.SetGlobalRandom(t, p.Seed)
	oldrand.Seed(int64(p.Seed)) //nolint:staticcheck // nothing else makes that source deterministic
	return simulate(t, p)
}

// TestFleet simulates fleets until its time is over.
func TestFleet(t *testing.T) {
	began, hours, runs := time.Now(), 0.0, 0
	limit := 20 * time.Second
	if text := os.Getenv("HOSTLER_SIM_TIME"); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	first := uint64(1)
	classes := map[string]int{}
	for seed := first; time.Since(began) < limit; seed++ {
		o := simulateSeeded(t, newPlan(seed))
		hours += o.hours
		runs++
		if o.failure != "" {
			if classes[o.class]++; classes[o.class] == 1 {
				explain(t, o)
			}
		}
	}
	t.Logf("%d seeds, %.1f fleet-hours in %v", runs, hours, time.Since(began).Round(time.Millisecond))
	for class, n := range classes {
		t.Logf("%4d of %d: %s", n, runs, class)
	}
}

// TestPlan replays the plan in HOSTLER_SIM_PLAN.
func TestPlan(t *testing.T) {
	var p plan
	text := os.Getenv("HOSTLER_SIM_PLAN")
	if text == "" {
		p = newPlan(1)
	} else if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	o := simulateSeeded(t, p)
	if o.failure != "" {
		explain(t, o)
	}
	if os.Getenv("HOSTLER_SIM_STEPS") != "" {
		for _, s := range o.steps {
			t.Logf("%016x %s", s.hash, s.text)
		}
	}
}

// explain fails the test with everything that a person needs.
func explain(t *testing.T, o outcome) {
	t.Helper()
	var faults []string
	for _, f := range o.plan.Faults {
		faults = append(faults, "  "+f.String())
	}
	last := o.events[max(0, len(o.events)-60):]
	t.Errorf("seed %d on %s with %d hosts: %s\nfaults:\n%s\nlast events:\n  %s\nreplay: HOSTLER_SIM_PLAN='%s' go test ./test/fleetsim -run TestPlan -v",
		o.plan.Seed, o.plan.Engine, o.plan.Hosts, o.failure, strings.Join(faults, "\n"), strings.Join(last, "\n  "), o.plan)
}
