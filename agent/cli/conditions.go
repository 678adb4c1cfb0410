package cli

import (
	"strings"

	"hostler.io/hostler/agent/api"
)

func printConditions(t *table, out *output, s api.Status) {
	if s.Node == nil {
		return
	}
	t.line("")
	rows := [][]string{{"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	for _, c := range s.Node.Status.Conditions {
		rows = append(rows, []string{string(c.Type), string(c.Status), out.ago(c.LastTransitionTime.Time), c.Reason, c.Message})
	}
	if out.wide() {
		for _, row := range rows {
			t.row(row...)
		}
		return
	}
	fold(t, rows)
}

// longName is how much room the column of names takes at the most.
const longName = 36

// fold writes the first four columns, which are a name, two short ones and a reason,
// and breaks what a screen does not take.
func fold(t *table, rows [][]string) {
	var widths [3]int
	for _, row := range rows {
		for i := range widths {
			widths[i] = max(widths[i], columns(row[i])+3)
		}
	}
	widths[0] = min(widths[0], longName+3)
	before := widths[0] + widths[1] + widths[2]
	for _, row := range rows {
		names, reasons := wrap(row[0], widths[0]-3), wrap(row[3], screenWidth-before)
		for i := range max(len(names), len(reasons)) {
			line := pad("", widths[1]+widths[2])
			if i == 0 {
				line = pad(row[1], widths[1]) + pad(row[2], widths[2])
			}
			t.line("%s", strings.TrimRight(pad(at(names, i), widths[0])+line+at(reasons, i), " "))
		}
	}
}

// at is the line of that number; empty where there is none.
func at(lines []string, i int) string {
	if i >= len(lines) {
		return ""
	}
	return lines[i]
}
