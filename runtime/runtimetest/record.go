package runtimetest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/test/kept"
)

// Result is the result of a case of the suite.
type Result struct {
	Case        string `json:"case"`
	Unsupported string `json:"lacks,omitempty"` // why this runtime lacks the feature; the case has tested that
}

// resultsFolder is the folder of results, relative to the package of any adapter.
const resultsFolder = "../runtimetest/testdata"

// Record is Run, and compares the results with the recorded ones for that kind of runtime, from
// which docs/reference/runtimes.md is generated. With update it records them instead. It does
// neither if `go test -run` selects cases.
func Record(t *testing.T, kind string, update bool, factory Factory) {
	t.Helper()
	results := run(t, factory)
	if results == nil {
		return // the cases have failed or were not run
	}
	kept.JSON(t, filepath.Join(resultsFolder, kind+".json"), results, update, "run this test with -update, and then: go test ./runtime/runtimetest -update")
}

// Table returns a Markdown table of what each runtime supports: first the number of cases that all
// pass, then the other cases with a column for each kind. Notes say why a kind lacks a feature.
func Table(kinds []string, results map[string][]Result) (string, error) {
	var rows strings.Builder
	var notes []string
	common := 0
	for _, c := range cases {
		row, all := "", true
		for _, kind := range kinds {
			i := slices.IndexFunc(results[kind], func(r Result) bool { return r.Case == c.name })
			if i < 0 {
				return "", fmt.Errorf("%s: no result of the case %q", kind, c.name)
			}
			why := results[kind][i].Unsupported
			if why == "" {
				row += " | yes"
				continue
			}
			all = false
			if !slices.Contains(notes, why) {
				notes = append(notes, why)
			}
			row += fmt.Sprintf(" | – (%d)", slices.Index(notes, why)+1)
		}
		if all {
			common++
		} else {
			fmt.Fprintf(&rows, "%s%s\n", c.name, row)
		}
	}
	text := fmt.Sprintf("All runtimes pass %d of the %d cases. They differ in the others:\n\ncase | %s\n---%s\n%s",
		common, len(cases), strings.Join(kinds, " | "), strings.Repeat("|---", len(kinds)), &rows)
	for i, note := range notes {
		text += fmt.Sprintf("\n%d. %s%s.", i+1, strings.ToUpper(note[:1]), note[1:])
	}
	return text + "\n", nil
}

// The functions below return why a runtime with these abilities lacks what a case tests.

func nothing(Abilities) string { return "" }

func noImages(a Abilities) string { return unless(!a.Bare, "there are no images") }

func noPins(a Abilities) string {
	if a.Bare {
		return noImages(a)
	}
	return unless(a.Pins, "the runtime pins no image")
}

func noMaking(a Abilities) string {
	if a.Bare {
		return noImages(a)
	}
	return unless(a.ReportsCreation, "a container that is removed within seconds is not counted as use of its image")
}

func noEnds(a Abilities) string {
	return unless(!a.Bare, "exit codes and exit times are not stored")
}

func noStart(a Abilities) string {
	return unless(a.Starts, "hostler does not restart these containers: an orchestrator, systemd or a user does")
}

func noSandbox(a Abilities) string {
	return unless(a.Sandboxes, "a pod has no sandbox to remove")
}

func noRefusal(a Abilities) string {
	if a.Bare {
		return noImages(a)
	}
	return unless(a.RefusesImagesInUse, "the runtime removes it: hostler checks its users just before the removal")
}

func nobody(a Abilities) string { return unless(!a.Bare, "no daemon is involved") }

func unless(able bool, why string) string {
	if able {
		return ""
	}
	return why
}
