package few_test

import (
	"testing"

	"hostler.io/hostler/internal/few"
)

func TestNames(t *testing.T) {
	for want, names := range map[string][]string{
		"":                nil,
		"a":               {"a"},
		"a, b":            {"a", "b"},
		"a, b and 1 more": {"a", "b", "c"},
		"a, b and 2 more": {"a", "b", "c", "d"},
	} {
		if got := few.Names(names, 2); got != want {
			t.Errorf("Names(%q) = %q, want %q", names, got, want)
		}
	}
}
