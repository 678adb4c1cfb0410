package main

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestEachPartHasALine(t *testing.T) {
	var out strings.Builder
	var got []string
	get := func(name string, err error) part {
		return part{name, func(context.Context) error {
			if !strings.HasSuffix(out.String(), name+strings.Repeat(" ", 46-len(name))) {
				t.Errorf("output while %s is prepared = %q, want its name in it", name, out.String())
			}
			got = append(got, name)
			return err
		}}
	}
	broken := errors.New("no network")
	if err := run(t.Context(), &out, []part{get("first", nil), get("second", broken), get("third", nil)}); !errors.Is(err, broken) || !strings.Contains(err.Error(), "prepare second") {
		t.Errorf("run() = %v, want the error of the second part with its name", err)
	}
	if strings.Join(got, " ") != "first second" {
		t.Errorf("prepared = %q, want the parts up to the one that fails", got)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "prepare  1/3: first") || !strings.HasSuffix(lines[0], "0s, CPU 0s") || !strings.HasSuffix(lines[1], "failed") {
		t.Errorf("output = %q, want a line for each part, with its time or its failure", out.String())
	}
	if err := run(t.Context(), &out, nil); err != nil || !strings.Contains(out.String(), "prepared in 0s") {
		t.Errorf("run() of nothing = %v, %q, want the time of all", err, out.String())
	}
}

func TestPartsHaveDifferentNames(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range parts(nil) {
		if seen[p.name] || len(p.name) > 46 {
			t.Errorf("part %q is there twice, or its name is too long for its column", p.name)
		}
		seen[p.name] = true
	}
	if !seen["program: kube-apiserver"] || !seen["tools: containers"] || !seen["compiled: tests"] {
		t.Errorf("parts = %v, want tools, programs and compiled tests", seen)
	}
}
