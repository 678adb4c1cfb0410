package few_test

import (
	"errors"
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

func TestErrors(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	if err := few.Errors(nil, 2); err != nil {
		t.Errorf("Errors() of none = %v, want nil", err)
	}
	all := []error{a, b, c, c}
	for want, errs := range map[string][]error{"a": {a}, "a\nb": {a, b}, "a\nb\nand 2 more": all} {
		if err := few.Errors(errs, 2); err == nil || err.Error() != want || !errors.Is(err, a) {
			t.Errorf("Errors(%v) = %q, want %q", errs, err, want)
		}
	}
	if all[2] != c {
		t.Error("Errors() changed its argument")
	}
}
