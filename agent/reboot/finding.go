package reboot

import (
	"fmt"
	"slices"
	"strings"

	"hostler.io/hostler/internal/few"
)

// Finding is a file or a check, and its message.
type Finding struct {
	Source  string `json:"source"`
	Message string `json:"message"`
	// Hint is what to do about a check that cannot run or fails; absent if there is nothing to do.
	Hint string `json:"hint,omitempty"`
	// New reports that the file appeared after this boot.
	New bool `json:"new,omitempty"`
	// Pending reports that the result is not known yet, for example because the agent has just started.
	Pending bool `json:"pending,omitempty"`
}

// String formats a finding for people.
func (f Finding) String() string {
	if f.Message == "" {
		return f.Source
	}
	return fmt.Sprintf("%s (%s)", f.Message, f.Source)
}

// undecided formats a finding whose result is not known.
func (f Finding) undecided() string {
	kind := "check"
	if strings.HasPrefix(f.Source, "/") {
		kind = "file"
	}
	return fmt.Sprintf("%s %s: %s", kind, f.Source, f.Message)
}

// mostNamed is how many findings a message names.
const mostNamed = 3

// Names names the first findings, and counts the others.
func Names(list []Finding) string { return names(list, Finding.String) }

// unknowns names the first findings whose result is not known, and counts the others.
func unknowns(list []Finding) string { return names(list, Finding.undecided) }

func names(list []Finding, format func(Finding) string) string {
	var texts []string
	for _, f := range list {
		texts = append(texts, format(f))
	}
	return few.Names(texts, mostNamed)
}

// without returns the findings for which drop is false.
func without(list []Finding, drop func(Finding) bool) []Finding {
	return slices.DeleteFunc(slices.Clone(list), drop)
}
