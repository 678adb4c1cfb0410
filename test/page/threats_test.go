package page_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testNamed = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// TestTheThreatModelNamesTests reads docs/explanation/threat-model.md and security.md. Each thing
// that an attacker or the service cannot do needs a test, or a statement that there is none.
func TestTheThreatModelNamesTests(t *testing.T) {
	text, err := os.ReadFile("../../docs/explanation/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile("../../docs/explanation/security.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t, "../..")
	for _, m := range testNamed.FindAllStringSubmatch(string(text)+string(limits), -1) {
		if !tests[m[1]] {
			t.Errorf("the pages about security name %s, and there is no such test", m[1])
		}
	}
	if !strings.Contains(string(limits), "TestTheAgentRunsAsItsUnitSays") {
		t.Error("docs/explanation/security.md names no test of what the service cannot do")
	}
	attackers, rows := 0, 0
	for section := range strings.SplitSeq(string(text), "\n## ") {
		_, table, found := strings.Cut(section, "asset | it cannot | shown by\n---|---|---\n")
		if !found {
			continue
		}
		attackers++
		for row := range strings.Lines(table) {
			if !strings.Contains(row, " | ") {
				break
			}
			rows++
			if !testNamed.MatchString(row) && !strings.Contains(row, "*not tested*") {
				t.Errorf("docs/explanation/threat-model.md has a row without a test that does not say so: %s", row)
			}
		}
	}
	if attackers != 10 || rows < 40 {
		t.Errorf("docs/explanation/threat-model.md has %d attackers and %d rows, want 10 and 40 at least", attackers, rows)
	}
	if words := len(strings.Fields(string(text))); words > 3000 {
		t.Errorf("docs/explanation/threat-model.md has %d words, want at most 3000", words)
	}
}

// testsOf returns the names of all tests below root.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, f := range testFunc.FindAllStringSubmatch(string(text), -1) {
			names[f[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatalf("find tests: %v", err)
	}
	return names
}
