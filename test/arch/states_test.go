package arch_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/status/report"
)

var update = flag.Bool("update", false, "write what is generated into ARCHITECTURE.md")

// diagrams are the state machines of ARCHITECTURE.md, in its order.
func diagrams() (all []string) {
	guard := fmt.Sprintf("    [*] --> %v\n", shutdown.Disarmed)
	for _, edge := range shutdown.Transitions() {
		guard += fmt.Sprintf("    %v --> %v: %s\n", edge.From, edge.To, edge.When)
	}
	container := fmt.Sprintf("    [*] --> %v\n", drain.Unrequested)
	for _, edge := range drain.Transitions() {
		container += fmt.Sprintf("    %v --> %v: %s\n", edge.From, edge.To, edge.When)
	}
	registration := fmt.Sprintf("    [*] --> %v\n", report.Unregistered)
	for _, edge := range report.Transitions() {
		registration += fmt.Sprintf("    %v --> %v: %s\n", edge.From, edge.To, edge.When)
	}
	return []string{guard, container, registration}
}

// TestDiagramsAreTheTransitionTables compares the diagrams in ARCHITECTURE.md with the code, or
// writes them with -update.
func TestDiagramsAreTheTransitionTables(t *testing.T) {
	const file, begin, end = "../../ARCHITECTURE.md", "```mermaid\nstateDiagram-v2\n", "```\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var made strings.Builder
	rest := string(text)
	for _, want := range diagrams() {
		before, tail, found := strings.Cut(rest, begin)
		drawn, after, closed := strings.Cut(tail, end)
		if !found || !closed {
			t.Fatalf("%s lacks a block %q", file, begin)
		}
		if drawn != want && !*update {
			t.Errorf("a diagram is\n%s, want\n%s; write it with: go test ./test/arch -update", drawn, want)
		}
		made.WriteString(before + begin + want + end)
		rest = after
	}
	if !*update {
		return
	}
	if err := os.WriteFile(file, []byte(made.String()+rest), 0o644); err != nil {
		t.Fatal(err)
	}
}
