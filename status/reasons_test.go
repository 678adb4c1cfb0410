package status_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/status"
)

// TestReasonsAreDocumented compares the constants with the tables of
// docs/reference/conditions.md, in both directions.
func TestReasonsAreDocumented(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	inCode := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		if name := "Reason" + value; spec.Names[0].Name != name {
			t.Errorf("constant %s has value %q, want it named %s", spec.Names[0].Name, value, name)
		}
		inCode[value] = true
		return true
	})

	doc, err := os.ReadFile("../docs/reference/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	inDoc := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^`(\\w+)` \\| (True|False|Unknown) \\| .+ \\| .+$").FindAllStringSubmatch(string(doc), -1) {
		if inDoc[row[1]] {
			t.Errorf("docs/reference/conditions.md lists %s twice", row[1])
		}
		inDoc[row[1]] = true
	}
	got, want := slices.Sorted(maps.Keys(inDoc)), slices.Sorted(maps.Keys(inCode))
	if !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("docs/reference/conditions.md lists %v, want %v", got, want)
	}
}

// TestEventsAreDocumented looks up every Event reason in docs/reference/events.md.
func TestEventsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	facts, options := stalling(t)
	conditions, _ := status.Conditions(facts, options, status.Memory{}, noon)
	for _, c := range conditions {
		for _, s := range []corev1.ConditionStatus{"True", "False", "Unknown"} {
			c.Status = s
			reason := status.Transition{New: c}.EventReason()
			if !strings.Contains(string(doc), "`"+reason+"`") {
				t.Errorf("docs/reference/events.md does not list Event %s of %s %s", reason, c.Type, s)
			}
		}
	}
}
