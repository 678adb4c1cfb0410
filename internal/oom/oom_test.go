package oom_test

import (
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/internal/oom"
)

func TestAChildIsNoBetterProtectedThanOthers(t *testing.T) {
	for _, c := range []struct{ own, want string }{
		{"-900\n", "0"},
		{"0\n", "0\n"},
		{"200\n", "200\n"}, // as in a user's session
	} {
		proc := t.TempDir()
		for _, folder := range []string{"self", "42"} {
			if err := os.Mkdir(filepath.Join(proc, folder), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(proc, folder, "oom_score_adj"), []byte(c.own), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		oom.Reset(proc, 42)
		oom.Reset(proc, 43) // process 43 has ended
		got, err := os.ReadFile(filepath.Join(proc, "42", "oom_score_adj"))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != c.want {
			t.Errorf("the score of a child of a process with %q is %q, want %q", c.own, got, c.want)
		}
	}
}
