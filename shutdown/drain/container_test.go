package drain_test

import (
	"testing"

	"hostler.io/hostler/shutdown/drain"
)

func TestTransitionsLeadToEachStateAndNoneStandsTwice(t *testing.T) {
	reached := map[drain.State]bool{drain.Unrequested: true}
	seen := map[[2]drain.State]bool{}
	for _, edge := range drain.Transitions() { // in the order in which states are reached
		pair := [2]drain.State{edge.From, edge.To}
		if edge.From == edge.To || seen[pair] || !reached[edge.From] || edge.When == "" {
			t.Errorf("Transitions() has %+v, want each edge once, with a reason, from a state that others lead to", edge)
		}
		seen[pair], reached[edge.To] = true, true
	}
	for s := drain.Unrequested; s <= drain.Failed; s++ {
		if !reached[s] || s.String() == "" {
			t.Errorf("no transition leads to %v", s)
		}
	}
}
