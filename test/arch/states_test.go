package arch_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"hostler.io/hostler/shutdown"
)

var update = flag.Bool("update", false, "write what is generated into ARCHITECTURE.md")

// TestTheDiagramOfTheGuardIsItsTransitionTable compares the diagram in
// ARCHITECTURE.md with the code, or writes it with -update.
func TestTheDiagramOfTheGuardIsItsTransitionTable(t *testing.T) {
	const file, begin, end = "../../ARCHITECTURE.md", "```mermaid\nstateDiagram-v2\n", "```\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	drawn, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no block %q", file, begin)
	}
	var want strings.Builder
	fmt.Fprintf(&want, "    [*] --> %v\n", shutdown.Disarmed)
	for _, edge := range shutdown.Transitions() {
		fmt.Fprintf(&want, "    %v --> %v: %s\n", edge.From, edge.To, edge.When)
	}
	if drawn == want.String() {
		return
	}
	if !*update {
		t.Fatalf("the diagram is\n%s, want\n%s; write it with: go test ./test/arch -update", drawn, want.String())
	}
	if err := os.WriteFile(file, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
