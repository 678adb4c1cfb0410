package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEventsAreDocumented compares the reasons of hostler's Events with the tables in
// docs/reference/events.md, in both directions. In the code, a reason is a CamelCase string next to
// an Event's type, in a call that records an Event or in a variable. Package status lists the
// reasons of conditions.
func TestEventsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(doc)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			for _, m := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(cells[0], -1) {
				listed[m[1]] = true
			}
		}
	}
	made := map[string]bool{}
	for _, folder := range []string{".", "../status/report", "../controlplane"} {
		err = filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				reasonsIn(t, path, made)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(made) < 18 {
		t.Errorf("found the reasons %v, want all of hostler's", slices.Sorted(maps.Keys(made)))
	}
	for reason := range made {
		if !listed[reason] {
			t.Errorf("docs/reference/events.md does not list Event %s", reason)
		}
	}
	for reason := range listed {
		if !made[reason] {
			t.Errorf("docs/reference/events.md lists Event %s, which nobody makes", reason)
		}
	}
}

// reasonsIn adds the reasons in one file.
func reasonsIn(t *testing.T, path string, found map[string]bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`^[A-Z][a-z]+[A-Za-z]*$`)
	add := func(list []ast.Expr) {
		for _, e := range list {
			if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil && word.MatchString(text) {
					found[text] = true
				}
			}
		}
	}
	isType := func(e ast.Expr) bool {
		s, ok := e.(*ast.SelectorExpr)
		return ok && (s.Sel.Name == "EventTypeNormal" || s.Sel.Name == "EventTypeWarning")
	}
	reasonVariable := func(e ast.Expr) bool {
		name, ok := e.(*ast.Ident)
		return ok && name.Name == "reason"
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "Record" || f.Sel.Name == "event") || slices.ContainsFunc(n.Args, isType) {
				add(n.Args)
			}
		case *ast.ReturnStmt:
			if slices.ContainsFunc(n.Results, isType) {
				add(n.Results)
			}
		case *ast.AssignStmt: // reason, ... := "Word", ...
			if slices.ContainsFunc(n.Lhs, reasonVariable) && slices.Contains([]string{"report", "maintenance"}, filepath.Base(filepath.Dir(path))) {
				add(n.Rhs)
			}
		}
		return true
	})
}
