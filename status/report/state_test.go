package report

import "testing"

func TestTransitionsLeadToEachStateAndNoneStandsTwice(t *testing.T) {
	reached := map[State]bool{Unregistered: true}
	seen := map[[2]State]bool{}
	for _, edge := range Transitions() { // in the order in which states are reached
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
