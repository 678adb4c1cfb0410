package api

import (
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// Unspared counts the pods that a drain does not leave alone: a person's spares critical
// ones unless it is of all.
func Unspared(r journal.Record) int {
	n := 0
	for _, p := range r.Pods {
		if p.Outcome != journal.Skipped && (r.Trigger != journal.TriggerPerson || p.Priority < plan.CriticalPriority) {
			n++
		}
	}
	return n
}
