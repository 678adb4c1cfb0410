package journal_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// owing is a host with containers, and what hostler has to start again.
type owing struct {
	t      *testing.T
	random *rand.Rand
	path   string
	boot   int
	*journal.Journal
	stop   func()
	runs   map[string]bool // by ID
	owed   map[string]bool // hostler stopped it, and has to start it again
	drains map[journal.Trigger]time.Time
	log    []string
}

func (o *owing) open() {
	o.Journal = journal.Open(o.path, fmt.Sprint(o.boot), quiet)
	o.stop = keep(o.t, o.Journal)
}

// record adds some of the running containers to a record, and stops them.
func (o *owing) record(r *journal.Record) *journal.Record {
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(o.runs)) {
		if !o.runs[id] || o.random.IntN(3) == 0 {
			continue
		}
		r.Pods = append(slices.DeleteFunc(r.Pods, func(p journal.PodRecord) bool { return p.ID == id }), journal.PodRecord{
			Runtime: "docker", ID: id, StartedAt: now, Outcome: journal.Stopped, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{id: now}},
		})
		o.runs[id], o.owed[id] = false, true
	}
	return r
}

func (o *owing) drain(trigger journal.Trigger) {
	r := &journal.Record{BootID: o.BootID(), Trigger: trigger, StartedAt: time.Now()}
	if start, unfinished := o.drains[trigger]; unfinished {
		r.StartedAt = start
		if d := o.Drained(); d != nil && d.StartedAt.Equal(start) {
			r = d.Reopened()
		}
	}
	o.BeginDrain(r, none)
	o.PutDrained(o.record(r))
	if trigger.ByHost() {
		o.drains[trigger] = r.StartedAt
	} else {
		o.owed = map[string]bool{} // a person has stopped them
	}
}

func (o *owing) undo(trigger journal.Trigger) {
	if start, there := o.drains[trigger]; there {
		o.UndoDrain(start)
		delete(o.drains, trigger)
	}
}

// step does something at random.
func (o *owing) step() {
	automatic := []journal.Trigger{journal.TriggerReboot, journal.TriggerTaint}[o.random.IntN(2)]
	what := ""
	switch o.random.IntN(9) {
	case 0, 1:
		what = "drain for a " + string(automatic)
		o.drain(automatic)
	case 2, 3:
		what = "undo of the drain for a " + string(automatic)
		o.undo(automatic)
	case 4:
		what = "drain by a person"
		o.drain(journal.TriggerManual)
	case 5:
		what = "cancelled shutdown"
		o.Put(cancelled(o.record(&journal.Record{BootID: o.BootID(), Trigger: journal.TriggerShutdown, StartedAt: time.Now()})))
		o.Settle()
	case 6:
		what = "boot"
		o.Put(o.record(&journal.Record{BootID: o.BootID(), Trigger: journal.TriggerShutdown, StartedAt: time.Now()}))
		o.stop()
		o.boot++
		o.open()
		delete(o.drains, journal.TriggerTaint) // it is not undone after a boot
	case 7:
		what = "next process"
		o.stop()
		o.open()
	case 8:
		for _, r := range o.Restarts() {
			if r.Outcome == "" && o.random.IntN(2) == 0 {
				what += "start of " + r.ID + " "
				r.Outcome = journal.Restarted
				o.NoteRestart(r)
				o.runs[r.ID] = true
				delete(o.owed, r.ID)
			}
		}
	}
	o.log = append(o.log, what)
}

// Whatever happens: what hostler has stopped and has to start again is pending once no drain keeps it
// stopped, until it was started, or a person has drained the host.
func TestWhatHostlerHasToStartStaysPending(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			o := &owing{
				t: t, random: rand.New(rand.NewPCG(seed, 0)), path: filepath.Join(t.TempDir(), "shutdown.json"),
				runs: map[string]bool{"a": true, "b": true, "c": true}, owed: map[string]bool{}, drains: map[journal.Trigger]time.Time{},
			}
			o.open()
			for range 25 {
				o.step()
				time.Sleep(time.Second)
			}
			o.undo(journal.TriggerReboot)
			o.undo(journal.TriggerTaint)
			pending := map[string]bool{}
			for _, r := range o.Restarts() {
				pending[r.ID] = pending[r.ID] || r.Outcome == ""
			}
			for id := range o.owed {
				if !pending[id] {
					t.Errorf("seed %d: %s is not pending, want it started; after %q", seed, id, o.log)
				}
			}
			o.stop()
		})
	}
}
