//go:build integration

package bench_test

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
)

// figure is one row of the table: its subject, its samples and its target.
type figure struct {
	name    string
	unit    string
	samples []float64
	target  float64 // maximum; zero if there is no target
	never   bool    // the target is zero
}

// median returns the median sample, the lower one of two.
func (f figure) median() float64 {
	return slices.Sorted(slices.Values(f.samples))[(len(f.samples)-1)/2]
}

// table collects figures in the order of their measurement.
type table struct{ figures []figure }

func (t *table) add(f figure) { t.figures = append(t.figures, f) }

// print prints the table. The median decides whether a target is met.
func (t *table) print(w io.Writer) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "FIGURE\tVALUE\tTARGET\tMET?\tLEAST\tMOST\tRUNS")
	for _, f := range t.figures {
		target, met := "-", "-"
		if f.target > 0 || f.never {
			target, met = "at most "+number(f.target)+" "+f.unit, "yes"
			if f.median() > f.target {
				met = "NO"
			}
		}
		fmt.Fprintf(tab, "%s\t%s %s\t%s\t%s\t%s\t%s\t%d\n", f.name, number(f.median()), f.unit, target, met,
			number(slices.Min(f.samples)), number(slices.Max(f.samples)), len(f.samples))
	}
	_ = tab.Flush() // to standard output, or memory
}

// number formats a value with a useful precision.
func number(v float64) string {
	if v == float64(int64(v)) {
		return strconv.FormatInt(int64(v), 10)
	}
	if v < 1 {
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}
