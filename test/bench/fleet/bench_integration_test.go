//go:build integration

package fleet_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/test/bench/fleet"
)

var (
	sizes     = flag.String("sizes", "500,1000,2000,5000", "how many agents to try, one after the other")
	window    = flag.Duration("window", 5*time.Minute, "how long the last of these is measured")
	brief     = flag.Duration("brief", 2*time.Minute, "how long all others are measured")
	doublings = flag.Int("doublings", 8, "how often at most the last of these is doubled, until a lease is not kept")
	longer    = flag.Duration("longer", 2*time.Minute, "a lease to try the last of these with as well, renewed four times meanwhile; 0 for none")
)

// BenchmarkFleet finds how many agents a control plane on this machine supports, and their load on
// it. The fleet runs on the same machine.
func BenchmarkFleet(b *testing.B) {
	tried := plan(b)
	limits := widen(b)
	fmt.Printf("there is room for %s connections and %s MB\n", thousands(limits.connections), number(limits.memory/megabyte))
	for _, k := range kinds() {
		b.Run(k.name, func(b *testing.B) {
			before := load(b)
			var results []result
			defer func() {
				fmt.Printf("\nA fleet on one %s\n\n", k.name)
				printSteps(os.Stdout, results)
				fmt.Printf("\nWhat a fleet needs of %s\n\n", k.name)
				printSlope(os.Stdout, results)
				fmt.Printf("\non %s, load average before %s, after %s\n", machine(b), before, load(b))
			}()
			for _, s := range tried {
				r := try(b, k, s)
				progress(k, r)
				if results = append(results, r); !r.held {
					return
				}
			}
			carries, fails := search(tried[len(tried)-1].agents, *doublings, func(n int) bool {
				s, why := limits.step(k, results, n)
				if why != "" {
					fmt.Println(why)
				}
				r := try(b, k, s)
				progress(k, r)
				results = append(results, r)
				return r.held
			})
			fmt.Printf("%s carries %s agents", k.name, thousands(carries))
			if fails > 0 {
				fmt.Printf(" and not %s", thousands(fails))
			}
			fmt.Println()
		})
	}
}

// plan returns the steps that the flags request.
func plan(b *testing.B) []step {
	b.Helper()
	var steps []step
	for text := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			b.Fatalf("-sizes %s: %q is not a number of agents", *sizes, text)
		}
		steps = append(steps, step{n, standard(), *brief})
	}
	last := &steps[len(steps)-1]
	last.window = *window
	if *longer > 0 {
		pace := fleet.Pace{Duration: *longer, Interval: *longer / 4}
		// Each agent renews a few times.
		steps = append(steps, step{last.agents, pace, max(*brief, 4*pace.Interval)})
	}
	return steps
}

func progress(k kind, r result) {
	fmt.Printf("%s: %v: every lease kept: %v; %s renewals a second, p99 %s ms, %s s of CPU a minute\n", k.name, r, r.held,
		number(r.values["renewals"]), number(r.values["renewal: p99"]), number(r.values["CPU: of the control plane"]))
}

// machine describes the machine of the measurements.
func machine(b *testing.B) string {
	b.Helper()
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	check(b, err)
	return fmt.Sprintf("%d CPUs, which the fleet has a part in, Linux %s", goruntime.NumCPU(), bytes.TrimSpace(kernel))
}

// load returns the load average.
func load(b *testing.B) string {
	b.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	check(b, err)
	return strings.Fields(string(text))[0]
}
