package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// Table shows which control plane has which feature, as Markdown, from the results of the checks.
// First comes a list of the features that all of them have. A table of the other features follows,
// with a column for each type of control plane. Notes explain what is missing. A check without a
// result is an error.
func Table(types []string, results map[string][]Result) (string, error) {
	var common, rows strings.Builder
	var notes []string
	for _, feature := range Features() {
		row, all := "", true
		for _, kind := range types {
			verdict, whys, err := verdictOf(feature, results[kind])
			if err != nil {
				return "", fmt.Errorf("%s: %w", kind, err)
			}
			for _, why := range whys {
				if !slices.Contains(notes, why) {
					notes = append(notes, why)
				}
				verdict += fmt.Sprintf(" (%d)", slices.Index(notes, why)+1)
			}
			row += fmt.Sprintf(" | %s", verdict)
			all = all && verdict == "yes"
		}
		if all {
			fmt.Fprintf(&common, "- %s\n", feature)
		} else {
			fmt.Fprintf(&rows, "%s%s\n", feature, row)
		}
	}
	text := fmt.Sprintf("All have:\n\n%s\nThey differ in:\n\nfeature | %s\n---%s\n%s",
		&common, strings.Join(types, " | "), strings.Repeat("|---", len(types)), &rows)
	for i, note := range notes {
		text += fmt.Sprintf("\n%d. %s%s.", i+1, strings.ToUpper(note[:1]), note[1:])
	}
	return text + "\n", nil
}

// verdictOf returns a verdict on a feature in one or two words, and why checks did not pass.
func verdictOf(feature Feature, results []Result) (verdict string, whys []string, err error) {
	counts, checks := map[Status]int{}, 0
	for _, check := range Checks() {
		if check.Feature != feature {
			continue
		}
		i := slices.IndexFunc(results, func(r Result) bool { return r.Check == check.Name })
		if i < 0 {
			return "", nil, fmt.Errorf("no result of check %q", check.Name)
		}
		checks++
		r := results[i]
		counts[r.Status]++
		if r.Status != OK && !slices.Contains(whys, r.Message) {
			whys = append(whys, r.Message)
		}
	}
	switch {
	case counts[Failed] > 0:
		verdict = "**fails**"
	case counts[OK] == checks:
		verdict = "yes"
	case counts[OK] > 0:
		verdict = "in part"
	case counts[Untried] == checks:
		verdict = "not tried"
	default:
		verdict = "–"
	}
	return verdict, whys, nil
}
