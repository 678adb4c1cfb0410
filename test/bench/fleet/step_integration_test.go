//go:build integration

package fleet_test

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/test/bench/fleet"
)

const (
	// parts is the number of parts of a window: a figure is the median of theirs.
	parts = 5
	// joinsASecond limits how fast hosts join: the measurements are about a running fleet.
	joinsASecond = 200
	report       = 5 * time.Minute

	kilobyte, megabyte = 1e3, 1e6
)

// step is a fleet to be tested.
type step struct {
	agents int
	pace   fleet.Pace
	window time.Duration
}

// standard returns the pace of hostler's defaults.
func standard() fleet.Pace { return fleet.Pace{Duration: 40 * time.Second, Interval: 10 * time.Second} }

// represents returns how many agents at the standard interval renew as often as these, if their
// interval is shorter.
func (s step) represents() int {
	return int(math.Round(float64(s.agents) * max(1, standard().Interval.Seconds()/s.pace.Interval.Seconds())))
}

// late returns the longest gap between two renewals that still counts as in time. If a shorter
// interval represents more agents, the store has to be as fast as those agents need.
func (s step) late() time.Duration {
	return s.pace.Duration - max(0, standard().Interval-s.pace.Interval)
}

// String is the header of the step's column.
func (s step) String() string {
	text := thousands(s.agents)
	if s.pace != standard() {
		text += fmt.Sprintf(" (%s/%s)", short(s.pace.Duration), short(s.pace.Interval))
	}
	return text
}

// result is the result of a step.
type result struct {
	step
	held    bool
	remarks string             // why it failed, or failures although it succeeded
	values  map[string]float64 // figures by name, as far as they were measured
}

// try tests a fleet on a new control plane.
func try(b *testing.B, k kind, s step) result {
	b.Helper()
	d := k.open(b)
	defer d.end(b)
	r := result{step: s, values: map[string]float64{}}
	spread := max(s.pace.Interval, time.Duration(s.agents)*time.Second/joinsASecond)
	ctx, cancel := context.WithTimeout(b.Context(), 3*spread+s.window+10*time.Minute)
	defer cancel()
	leases, err := fleet.Watch(ctx, d.store, d.leases)
	check(b, err)
	before := own(b)
	f := fleet.Start(ctx, fleet.Options{
		Agents: s.agents, Pace: s.pace, Report: report, Spread: spread, Template: host(b), Connect: d.connect,
	})
	defer f.Close()
	joining, joined := context.WithTimeout(ctx, 3*spread+time.Minute)
	defer joined()
	if err := f.Joined(joining); err != nil {
		r.remarks = err.Error()
		return r
	}
	after := own(b)
	r.values["fleet: memory of an agent"] = (after.rss - before.rss) / float64(s.agents) / kilobyte
	r.values["fleet: connections of an agent"] = (after.files - before.files) / float64(s.agents)
	r.measure(ctx, b, d, f, leases)
	r.compact(ctx, b, d)
	return r
}

// usage is the usage of this process, which is the fleet.
type usage struct{ rss, files float64 }

func own(b *testing.B) usage {
	b.Helper()
	debug.FreeOSMemory()
	self, err := procfs.Self()
	check(b, err)
	stat, err := self.Stat()
	check(b, err)
	files, err := self.FileDescriptorsLen()
	check(b, err)
	return usage{float64(stat.ResidentMemory()), float64(files)}
}

// measure observes the fleet in the step's window.
func (r *result) measure(ctx context.Context, b *testing.B, d *bed, f *fleet.Fleet, leases *fleet.Leases) {
	b.Helper()
	f.Took()
	failed := f.Failed()
	leases.Begin()
	readings := []fleet.Reading{read(ctx, b, d)}
	renewals := []float64{0}
	var kept fleet.Kept
	for range parts {
		time.Sleep(r.window / parts)
		readings = append(readings, read(ctx, b, d))
		var err error
		kept, err = leases.Kept()
		check(b, err)
		renewals = append(renewals, float64(kept.Renewals))
	}
	r.judge(kept, f, failed)
	r.rates(d, readings, renewals)
	took := f.Took()
	for name, q := range map[string]float64{"renewal: median": 0.5, "renewal: p99": 0.99, "renewal: slowest": 1} {
		r.values[name] = fleet.Quantile(took, q).Seconds() * 1e3
	}
}

func read(ctx context.Context, b *testing.B, d *bed) fleet.Reading {
	b.Helper()
	reading, err := d.meter.Read(ctx)
	check(b, err)
	return reading
}

// judge decides from the store's data whether every Lease was renewed in time.
func (r *result) judge(kept fleet.Kept, f *fleet.Fleet, failedBefore int) {
	late := 0
	for _, gap := range kept.Gaps {
		if gap > r.late() {
			late++
		}
	}
	r.values["longest gap: median"] = fleet.Quantile(kept.Gaps, 0.5).Seconds()
	r.values["longest gap: of all"] = fleet.Quantile(kept.Gaps, 1).Seconds()
	r.values["leases that ended"] = float64(len(kept.Gone))
	r.values["leases that were late"] = float64(late)
	r.values["calls that failed"] = float64(f.Failed() - failedBefore)
	r.held = len(kept.Gone) == 0 && late == 0 && kept.Leases == r.agents
	switch {
	case !r.held:
		r.remarks = fmt.Sprintf("%d leases are there, %d ended, %d were late; calls that failed: %s", kept.Leases, len(kept.Gone), late, f.Failures())
	case f.Failed() > 0:
		r.remarks = "every lease kept; calls that failed and were made again, those while joining included: " + f.Failures()
	}
}

// rates computes the medians over the parts of the window.
func (r *result) rates(d *bed, readings []fleet.Reading, renewals []float64) {
	samples := map[string][]float64{}
	add := func(name string, v float64) { samples[name] = append(samples[name], v) }
	for i := 1; i < len(readings); i++ {
		now, before := readings[i], readings[i-1]
		seconds := now.At.Sub(before.At).Seconds()
		add("renewals", (renewals[i]-renewals[i-1])/seconds)
		add("keys put", (now.Puts-before.Puts)/seconds)
		if now.KeepAlives > 0 { // kube-apiserver's etcd has none
			add("keep-alives", (now.KeepAlives-before.KeepAlives)/seconds)
		}
		add("history", (now.Used-before.Used)/seconds*3600/megabyte)
		add("database", now.Size/megabyte)
		behind, memory := 0.0, 0.0
		for process := range d.meter.Processes {
			minute := (now.CPU[process] - before.CPU[process]) / seconds * 60
			add("CPU: "+process, minute)
			add("memory: "+process, now.RSS[process]/megabyte)
			if process != "fleet" {
				behind += minute
				memory += now.RSS[process] / megabyte
			}
		}
		add("CPU: of the control plane", behind)
		add("CPU: of it, for 1,000 agents", behind/float64(r.agents)*1000)
		add("memory: of the control plane", memory)
	}
	for name, all := range samples {
		r.values[name] = fleet.Median(all)
	}
	syncs := readings[len(readings)-1].Syncs.Since(readings[0].Syncs)
	r.values["log synced: median"] = syncs.Quantile(0.5) * 1e3
	r.values["log synced: p99"] = syncs.Quantile(0.99) * 1e3
}

// compact removes the history, to measure the space of the fleet itself. The fleet continues to
// run. A page with history counts as free only after a later write.
func (r *result) compact(ctx context.Context, b *testing.B, d *bed) {
	b.Helper()
	answer, err := d.store.Get(ctx, "revision")
	check(b, err)
	_, err = d.store.Compact(ctx, answer.Header.Revision, clientv3.WithCompactPhysical())
	check(b, err)
	const enough = 5
	least := read(ctx, b, d).Used
	for still := 0; still < enough; still++ {
		time.Sleep(time.Second)
		if now := read(ctx, b, d).Used; now < least {
			least, still = now, 0
		}
	}
	r.values["database, compacted"] = least / megabyte
	r.values["database: of an agent"] = least / float64(r.agents) / kilobyte
}
