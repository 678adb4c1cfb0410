package lab_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/test/lab"
)

func TestMakeOnceFillsAFolderOnce(t *testing.T) {
	t.Setenv(lab.Prepared, "")
	dir, filled := filepath.Join(t.TempDir(), "kit"), 0
	fill := func(temporary string) error {
		filled++
		return os.WriteFile(filepath.Join(temporary, "file"), nil, 0o644)
	}
	broken := errors.New("no network")
	if err := lab.MakeOnce(dir, func(string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("MakeOnce() = %v, want %v", err, broken)
	}
	for range 2 {
		if err := lab.MakeOnce(dir, fill); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil || filled != 1 {
		t.Errorf("the folder was filled %d times, and has the file: %v, want once", filled, err)
	}

	// Nothing is built or fetched beside the tests of make test.
	t.Setenv(lab.Prepared, "1")
	if err := lab.MakeOnce(dir, fill); err != nil {
		t.Errorf("MakeOnce() of a folder that exists = %v, want no error", err)
	}
	if err := lab.MakeOnce(dir+"-2", fill); err == nil || !strings.Contains(err.Error(), "add it to test/prepare") || filled != 1 {
		t.Errorf("MakeOnce() of what is not prepared = %v, filled %d times, want it refused", err, filled)
	}
}
