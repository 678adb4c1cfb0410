package journal

import (
	"fmt"
	"strings"
)

// Killed counts the pods with a killed container. They do not make a drain not graceful, because
// they had their grace period.
func (r Record) Killed() int { return r.count(Killed) }

func (r Record) count(outcome Outcome) (n int) {
	for _, p := range r.Pods {
		if p.Outcome == outcome {
			n++
		}
	}
	return n
}

// Tally returns the number of pods by result, for messages.
func (r Record) Tally() string {
	var parts []string
	for _, c := range []struct {
		outcome Outcome
		text    string
	}{
		{Stopped, "stopped"},
		{Killed, "killed after their grace period"},
		{Left, "cut off"},
		{Skipped, "not touched"},
		{"", "not yet stopped"},
	} {
		if n := r.count(c.outcome); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c.text))
		}
	}
	switch len(parts) {
	case 0:
		return "no pods seen"
	case 1:
		noun := "pods"
		if len(r.Pods) == 1 {
			noun = "pod"
		}
		n, text, _ := strings.Cut(parts[0], " ")
		return n + " " + noun + " " + text
	}
	return fmt.Sprintf("%d pods: %s", len(r.Pods), strings.Join(parts, ", "))
}
