package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
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
	var sources []string
	for _, room := range []string{".", "maintenance", "report"} {
		files, err := filepath.Glob(filepath.Join(room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, files...)
	}
	reason := regexp.MustCompile(`^(Registered|Node[A-Z]|(Last)?Shutdown[A-Z]|Shutdown$|Drain[A-Z]|Images[A-Z]|Collection[A-Z])[A-Za-z]*$`)
	found := map[string]bool{}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
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
