package report

import (
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
)

func TestTransitionsReachEachStateAndAreUnique(t *testing.T) {
	reached := map[State]bool{Unregistered: true}
	seen := map[[2]State]bool{}
	for _, edge := range Transitions() { // in the order in which states can be reached
		pair := [2]State{edge.From, edge.To}
		if edge.From == edge.To || seen[pair] || !reached[edge.From] || edge.When == "" {
			t.Errorf("Transitions() has %+v, want each edge once, with a reason, from a state that others lead to", edge)
		}
		seen[pair], reached[edge.To] = true, true
	}
	for s := Unregistered; s <= Outdated; s++ {
		if !reached[s] || s.String() == "" {
			t.Errorf("no transition leads to %v", s)
		}
	}
}

func TestAnAwaitedNodeMayBelongToAnotherMachine(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.o.Watch, d.o.AdoptOnly = controlplane.NewLeaseWatch(nil), "nobody may"
		d.start(t)
		for _, step := range []struct {
			what string
			do   func() error
			want State
		}{
			{"nobody creates it", func() error { return nil }, Awaited},
			{"another machine registers it, and dies", func() error { d.registerOther(t)(); return nil }, Watching},
			{"somebody deletes it", func() error { return d.client.Leave(t.Context(), nodeName, otherMachine) }, Awaited},
			{"the host is deregistered", func() error { return d.Leave(t.Context(), "alice") }, Unregistered},
		} {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			time.Sleep(d.o.Update)
			synctest.Wait()
			if got := d.registration.state; got != step.want {
				t.Errorf("%s: the registration is %v, want %v", step.what, got, step.want)
			}
		}
	})
}
