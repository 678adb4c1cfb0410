//go:build integration

package fleet_test

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// rows are the figures of a step in the order of the table. Figures that a control plane does not
// have are left out.
func rows() [][2]string {
	return [][2]string{
		{"renewals", "a second"},
		{"keys put", "a second"},
		{"keep-alives", "a second"},
		{"CPU: etcd", "s a minute"},
		{"CPU: kube-apiserver", "s a minute"},
		{"CPU: of it, for 1,000 agents", "s a minute"},
		{"CPU: fleet", "s a minute"},
		{"memory: etcd", "MB"},
		{"memory: kube-apiserver", "MB"},
		{"memory: fleet", "MB"},
		{"fleet: memory of an agent", "kB"},
		{"fleet: connections of an agent", ""},
		{"database", "MB"},
		{"database, compacted", "MB"},
		{"database: of an agent", "kB"},
		{"history", "MB an hour"},
		{"log synced: median", "ms"},
		{"log synced: p99", "ms"},
		{"renewal: median", "ms"},
		{"renewal: p99", "ms"},
		{"renewal: slowest", "ms"},
		{"longest gap: median", "s"},
		{"longest gap: of all", "s"},
		{"leases that ended", ""},
		{"leases that were late", ""},
		{"calls that failed", ""},
	}
}

// printSteps writes a column for each step.
func printSteps(w io.Writer, results []result) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, cell func(result) string) {
		cells := []string{name}
		for _, r := range results {
			cells = append(cells, cell(r))
		}
		fmt.Fprintln(tab, strings.Join(cells, "\t")+"\t")
	}
	line("AGENTS", func(r result) string { return r.String() })
	line("stand for", func(r result) string { return thousands(r.represents()) })
	line("window", func(r result) string { return short(r.window) })
	line("every lease kept", func(r result) string {
		if r.held {
			return "yes"
		}
		return "NO"
	})
	for _, row := range rows() {
		known := false
		for _, r := range results {
			_, has := r.values[row[0]]
			known = known || has
		}
		if !known {
			continue
		}
		name := row[0]
		if row[1] != "" {
			name += ", " + row[1]
		}
		line(name, func(r result) string {
			v, has := r.values[row[0]]
			if !has {
				return "-"
			}
			return number(v)
		})
	}
	_ = tab.Flush() // to standard output
	for _, r := range results {
		if r.remarks != "" {
			fmt.Fprintf(w, "%s: %.2000s\n", r, r.remarks)
		}
	}
}

// number formats a value with a useful precision.
func number(v float64) string {
	switch a := max(v, -v); {
	case v == float64(int64(v)) && a < 1000:
		return strconv.FormatInt(int64(v), 10)
	case a < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 1000:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return thousands(int(v + 0.5))
}

// thousands formats a number with separators.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// short formats a duration without zero parts at its end.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
