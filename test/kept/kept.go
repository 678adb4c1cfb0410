// Package kept compares what tests find out with what the project keeps of it: files of
// results, and the tables in its documentation that are made from them. A difference is a
// failure, unless the run is to write again what is kept.
package kept

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// JSON compares results with a file of them, or writes it. The hint says what to run after
// a change that is meant.
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

// The lines between which a file has what is made from results.
const (
	begin = "<!-- made from the results of the conformance suite -->\n"
	end   = "<!-- end -->\n"
)

// Block compares what is to stand between the two lines of a file with what does, or
// writes it.
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
