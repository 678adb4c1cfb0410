//go:build integration

package fleet_test

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"hostler.io/hostler/test/bench/fleet"
)

// retention is how much history etcd keeps. It is compacted at the same interval, so there is up to
// twice as much.
const retention = 10 * time.Minute

// wants returns fleets to be predicted: at the default pace, and with the Leases that
// docs/explanation/heartbeats.md recommends for them.
func wants() []step {
	return []step{
		{agents: 20_000, pace: standard()},
		{agents: 20_000, pace: fleet.Pace{Duration: 2 * time.Minute, Interval: 30 * time.Second}},
		{agents: 20_000, pace: fleet.Pace{Duration: 400 * time.Second, Interval: 100 * time.Second}},
		{agents: 100_000, pace: standard()},
		{agents: 100_000, pace: fleet.Pace{Duration: 10 * time.Minute, Interval: 150 * time.Second}},
		{agents: 100_000, pace: fleet.Pace{Duration: 20 * time.Minute, Interval: 5 * time.Minute}},
	}
}

// term is a quantity that a figure may depend on.
type term struct {
	text string
	of   func(step) float64
}

func constant() term {
	return term{"in any case", func(step) float64 { return 1 }}
}

func perAgent() term {
	return term{"for each 1,000 agents", func(s step) float64 { return float64(s.agents) / 1000 }}
}

func perRenewal() term {
	return term{"for each 100 renewals a second", func(s step) float64 { return float64(s.agents) / s.pace.Interval.Seconds() / 100 }}
}

// slope is the dependency of a figure on agents and on renewals.
type slope struct {
	terms   []term
	factors []float64 // of the terms
	off     float64   // largest relative error, as a part of a measured value
}

// slopeOf fits a figure to all successful steps. A negative factor is too small to be measured, and
// is left out. If all steps have one pace, agents and renewals cannot be separated; then the result
// is valid only for that pace.
func slopeOf(results []result, f prediction) (s slope, atAnyPace, ok bool) {
	both := []term{constant(), perAgent(), perRenewal()}
	tries := [][]term{both, {constant(), perRenewal()}, {constant(), perAgent()}}
	if !f.renewals {
		tries = tries[2:]
	}
	for _, terms := range tries {
		s, ok = fit(results, f.name, terms)
		if !ok && len(terms) == len(both) {
			s, ok = fit(results, f.name, []term{constant(), perAgent()})
			return s, false, ok
		}
		if ok && slices.Min(s.factors[1:]) >= 0 {
			break
		}
	}
	return s, true, ok
}

func fit(results []result, name string, terms []term) (slope, bool) {
	s := slope{terms: terms}
	var x [][]float64
	var y []float64
	for _, r := range results {
		if v, has := r.values[name]; has && r.held {
			x, y = append(x, s.row(r.step)), append(y, v)
		}
	}
	var ok bool
	if s.factors, ok = fleet.Fit(x, y); !ok {
		return slope{}, false
	}
	for _, r := range results {
		if v := r.values[name]; v != 0 && r.held {
			s.off = max(s.off, math.Abs(s.at(r.step)-v)/math.Abs(v))
		}
	}
	return s, true
}

func (s slope) row(of step) []float64 {
	var row []float64
	for _, t := range s.terms {
		row = append(row, t.of(of))
	}
	return row
}

// at returns the figure of a step.
func (s slope) at(of step) (sum float64) {
	for i, v := range s.row(of) {
		sum += v * s.factors[i]
	}
	return sum
}

// String describes the terms.
func (s slope) String() string {
	var parts []string
	for i, t := range s.terms {
		parts = append(parts, number(s.factors[i])+" "+t.text)
	}
	return strings.Join(parts, ", ")
}

// prediction is a column of the table.
type prediction struct {
	head, name string
	renewals   bool    // depends on renewals as well as on agents
	scale      float64 // from the measured unit to the printed one
}

func columns() []prediction {
	return []prediction{
		{"KEYS PUT A SECOND", "keys put", true, 1},
		{"PROCESSORS", "CPU: of the control plane", true, 1.0 / 60},
		{"MEMORY, GB", "memory: of the control plane", false, 1.0 / 1000},
		{"COMPACTED, GB", "database, compacted", false, 1.0 / 1000},
		{"HISTORY, GB AN HOUR", "history", true, 1.0 / 1000},
	}
}

// printSlope prints the needs of larger fleets. It prints nothing that too few steps support.
func printSlope(w io.Writer, results []result) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	heads := []string{"AGENTS", "LEASE", "INTERVAL"}
	for _, f := range columns() {
		heads = append(heads, f.head)
	}
	fmt.Fprintln(tab, strings.Join(append(heads, fmt.Sprintf("DATABASE, GB, KEEPING %s", short(retention)), "FROM"), "\t")+"\t")
	for _, want := range wants() {
		fmt.Fprintln(tab, strings.Join(predict(results, want), "\t")+"\t")
	}
	_ = tab.Flush() // to standard output
	for _, f := range columns() {
		if s, _, ok := slopeOf(results, f); ok {
			fmt.Fprintf(w, "%s: %s; at most %.0f%% off what was measured\n", f.name, s, 100*s.off)
		}
	}
}

// predict returns the row of a fleet: measured values if it was tried, otherwise predictions from
// the other steps.
func predict(results []result, want step) []string {
	from, values := "measured", map[string]float64{}
	i := slices.IndexFunc(results, func(r result) bool { return r.held && r.agents == want.agents && r.pace == want.pace })
	for _, f := range columns() {
		if i >= 0 {
			values[f.name] = results[i].values[f.name]
			continue
		}
		from = "the slope"
		if s, atAnyPace, ok := slopeOf(results, f); ok && (atAnyPace || want.pace == standard()) {
			values[f.name] = s.at(want)
		}
	}
	cells := []string{thousands(want.agents), short(want.pace.Duration), short(want.pace.Interval)}
	cell := func(v, scale float64, known bool) {
		text := "-"
		if known {
			text = number(v * scale)
		}
		cells = append(cells, text)
	}
	for _, f := range columns() {
		v, known := values[f.name]
		cell(v, f.scale, known)
	}
	base, compacted := values["database, compacted"]
	history, grows := values["history"]
	cell(base+history*2*retention.Hours(), 1.0/1000, compacted && grows)
	return append(cells, from)
}
