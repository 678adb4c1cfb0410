package timeline

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Text returns the timeline as lines of the given width. # is the time that a pod took to end, and
// a dot is the rest of its grace period.
func (t Timeline) Text(width int) []string {
	const shortest = 20 // minimum width of bars
	phase, name, outcome := 0, 0, 0
	for _, l := range t.Lanes {
		phase, name, outcome = max(phase, columns(l.Phase)), max(name, columns(l.Name)), max(outcome, columns(l.Outcome))
	}
	if phase > 0 {
		phase += 2
	}
	if outcome > 0 {
		outcome += 2
	}
	bars := max(shortest, width-phase-name-2-outcome)
	name = min(name, max(shortest, width-phase-2-outcome-bars))
	end := rounded(t.Length)
	lines := []string{fmt.Sprintf("%*s0s%*s", phase+name+2, "", bars-2, end)}
	for _, l := range t.Lanes {
		line := pad(l.Phase, phase) + pad(shortened(l.Name, name), name+2)
		if l.Requested {
			from := min(t.column(l.From, bars), bars-1)
			to := max(from+1, t.column(l.To, bars))
			line += strings.Repeat(" ", from) + strings.Repeat("#", to-from) + strings.Repeat(".", max(0, t.column(l.Grace, bars)-to))
		}
		if l.Outcome != "" {
			line = pad(line, phase+name+2+bars) + "  " + l.Outcome
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// column returns the column of a time in a bar.
func (t Timeline) column(at time.Duration, columns int) int {
	if t.Length <= 0 {
		return 0
	}
	return int(float64(at)/float64(t.Length)*float64(columns) + 0.5)
}

func rounded(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

func columns(s string) int { return utf8.RuneCountInString(s) }

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-columns(s)))
}

// shortened keeps the end of a name, because it distinguishes the pods of a workload.
func shortened(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	return "…" + string(runes[len(runes)-width+1:])
}
