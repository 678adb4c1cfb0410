package cli_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// withProblems matches the name of a problem on a screen of status.
var withProblems = regexp.MustCompile(`(?m)^  ([a-zA-Z][a-zA-Z./-]*(?: [a-zA-Z./-]+){0,2})(?:, for [^:]+)?: `)

// docs/reference/doctor.md explains each problem of status under the same name.
func TestEveryProblemInStatusIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Problems in hostler status\n")
	table, _, _ = strings.Cut(table, "\n## ")
	found := 0
	for name, s := range scenes() {
		screen := hostler(serve(t, &backend{status: s}), "status").stdout
		wrong, _, _ := strings.Cut(screen, "\n\n")
		for _, m := range withProblems.FindAllStringSubmatch(wrong, -1) {
			if strings.HasPrefix(m[1], "is ") { // a verdict on two lines
				continue
			}
			what := strings.TrimSuffix(m[1], " unknown") // listed once in the table
			for _, kind := range []string{"loop ", "runtime "} {
				if strings.HasPrefix(what, kind) {
					what = kind + "NAME"
				}
			}
			found++
			if !strings.Contains(table, "`"+what+"`") && !strings.Contains(what, ".") { // a custom check has a domain
				t.Errorf("docs/reference/doctor.md does not explain %q, which status shows in scene %s:\n%s", what, name, wrong)
			}
		}
	}
	if found < 20 {
		t.Errorf("status says %d times what is wrong, want more: what is compared?", found)
	}
}
