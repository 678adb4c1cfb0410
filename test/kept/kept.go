// Package kept compares results of tests with the committed ones: files of results, and tables in
// the documentation that are made from them. A difference is a failure, unless the test is run with
// -update.
package kept

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// JSON compares results with a file, or writes the file if update is set. The hint names the
// command to run after an intended change.
func JSON(t testing.TB, file string, results any, update bool, hint string) {
	t.Helper()
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if update {
		write(t, file, text)
		return
	}
	if kept := read(t, file); kept != string(text) {
		t.Errorf("results are %s, want those in %s; after a change that is meant: %s", text, file, hint)
	}
}

// The lines around the generated part of a file.
const (
	begin = "<!-- made from the results of the conformance suite -->\n"
	end   = "<!-- end -->\n"
)

// Block compares the text between these two lines of a file with want, or writes it if update is
// set.
func Block(t testing.TB, file, want string, update bool, hint string) {
	t.Helper()
	before, rest, found := strings.Cut(read(t, file), begin)
	shown, after, closed := strings.Cut(rest, end)
	switch {
	case !found || !closed:
		t.Fatalf("%s has no block between %q and %q", file, begin, end)
	case shown == want:
	case update:
		write(t, file, []byte(before+begin+want+end+after))
	default:
		t.Fatalf("%s has\n%s, want\n%s; write it with: %s", file, shown, want, hint)
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t testing.TB, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
