//go:debug randseednop=0
package fleetsim

import (
	"encoding/json"
	"fmt"
	oldrand "math/rand"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"
)

// The variables of the environment that choose what is simulated.
const (
	variableTime   = "HOSTLER_SIM_TIME"   // how long, such as 10m; 20s by default
	variableSeed   = "HOSTLER_SIM_SEED"   // the first seed; 1 by default
	variablePlan   = "HOSTLER_SIM_PLAN"   // a plan to replay
	variableSteps  = "HOSTLER_SIM_STEPS"  // a file for the steps of a replayed plan
	variableSame   = "HOSTLER_SIM_SAME"   // not empty if most replays must agree: on a busy machine they differ more often
	variableUntil  = "HOSTLER_SIM_UNTIL"  // a regular expression: one process simulates seeds until a violation matches, without an end
	variableWorker = "HOSTLER_SIM_WORKER" // set by TestFleet for its workers: the number of one
)

// simulateSeeded makes a run with random numbers of its own: those of crypto/rand, and of math/rand, which
// client libraries use for jitter.
func simulateSeeded(t *testing.T, p plan) outcome {
	cryptotest.SetGlobalRandom(t, p.Seed)
	//lint:ignore SA1019 nothing else makes the source of client libraries repeatable
	oldrand.Seed(int64(p.Seed))
	return simulate(t, p)
}

// shrink drops faults as long as the run still violates the same rule.
func shrink(t *testing.T, o outcome, until time.Time) outcome {
	for i := 0; i < len(o.plan.Faults) && time.Now().Before(until); {
		p := o.plan
		p.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		if smaller := simulateSeeded(t, p); smaller.class == o.class {
			o = smaller
		} else {
			i++
		}
	}
	return o
}

// replays is how many runs TestReplay repeats.
const replays = 5

// TestReplay checks that runs are the same when they are repeated.
func TestReplay(t *testing.T) {
	same, runs := 0, replays
	for seed := range uint64(runs) {
		a, b := simulateSeeded(t, newPlan(1000+seed)), simulateSeeded(t, newPlan(1000+seed))
		i := differ(a.steps, b.steps)
		if i < 0 {
			same++
			continue
		}
		t.Logf("seed %d: step %d of %d differs: %s; %s, after %s", 1000+seed, i, len(a.steps), text(a.steps, i), text(b.steps, i), text(a.steps, max(i-1, 0)))
	}
	// A busy machine makes Go interrupt goroutines at other places. Without any order, no run would be the same.
	if t.Logf("%d of %d runs are the same when they are repeated", same, runs); same < 2 {
		t.Errorf("%d of %d runs are the same when they are repeated, want at least 2", same, runs)
	}
}

// differ returns the first step that differs; -1 if none does.
func differ(a, b []step) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func text(steps []step, i int) string {
	if i >= len(steps) {
		return "the end"
	}
	return fmt.Sprintf("%v %s", steps[i].at, steps[i].text)
}

// TestPlan replays a plan: the one that the environment has, or one without faults, which must pass.
func TestPlan(t *testing.T) {
	p := newPlan(1)
	p.Faults, p.Policy = nil, policy{1, true, "10%"}
	if given := os.Getenv(variablePlan); given != "" {
		if err := json.Unmarshal([]byte(given), &p); err != nil {
			t.Fatal(err)
		}
	}
	o := simulateSeeded(t, p)
	if o.failure != "" {
		t.Error(o.explain())
	}
	if file := os.Getenv(variableSteps); file != "" {
		var b strings.Builder
		for _, s := range o.steps {
			fmt.Fprintf(&b, "%016x %v %s\n", s.hash, s.at, s.text)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// shown is how many of the last events are shown.
const shown = 70

// explain returns everything that a person needs to know about a violation.
func (o outcome) explain() string {
	var faults []string
	for _, f := range o.plan.Faults {
		faults = append(faults, "  "+f.String())
	}
	events := slices.DeleteFunc(slices.Clone(o.events), func(line string) bool { return strings.Contains(line, "the process was killed") })
	return fmt.Sprintf("seed %d on %s with %d hosts: %s\nfaults:\n%s\nlast events:\n  %s\nreplay: %s='%s' go test ./test/fleetsim -run TestPlan",
		o.plan.Seed, o.plan.Engine, o.plan.Hosts, o.failure, strings.Join(faults, "\n"), strings.Join(events[max(0, len(events)-shown):], "\n  "), variablePlan, o.plan)
}
