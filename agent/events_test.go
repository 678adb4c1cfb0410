package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestEventsAreDocumented looks up the reasons of the agent's own Events in
// docs/conditions.md.
func TestEventsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	reason := regexp.MustCompile(`^(Registered|Node[A-Z]|(Last)?Shutdown[A-Z]|Shutdown$|Drain[A-Z]|Images[A-Z]|Collection[A-Z])[A-Za-z]*$`)
	found := map[string]bool{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil && reason.MatchString(text) {
					found[text] = true
				}
			}
			return true
		})
	}
	if len(found) < 12 {
		t.Errorf("found the reasons %v, want all of the agent's", found)
	}
	for text := range found {
		if !strings.Contains(string(doc), "`"+text+"`") {
			t.Errorf("docs/conditions.md does not list Event %s", text)
		}
	}
}
