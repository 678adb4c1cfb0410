package doctor

import (
	"fmt"
	"strings"
)

// mostLabels bounds how many ignored labels the check names.
const mostLabels = 5

// labels names the labels and annotations of pods and containers that hostler ignores.
func labels(f Facts) Check {
	ignored := f.Runtimes.Ignored
	if len(ignored) == 0 {
		return Check{}
	}
	var names []string
	for _, n := range ignored[:min(len(ignored), mostLabels)] {
		names = append(names, n.String())
	}
	if more := len(ignored) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more: `hostler shutdown plan` lists all", more))
	}
	return warn("correct the labels, and create the pods again; to make a running pod critical, set shutdown.critical (/usr/share/doc/hostler/docs/reference/labels.md)",
		"%s", strings.Join(names, "; "))
}
