package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/internal/atomicfile"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "below", "file")
	for _, text := range []string{"a long one", "short", ""} {
		// A crash may leave such a file.
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".new", []byte("torn, and readable by all"), 0o644)); err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.Replace(path, []byte(text)); err != nil {
			t.Fatalf("Replace() = %v", err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("after Replace() there is %q, %v, want %q", got, err, text)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("it has mode %v, %v, want it to be its owner's alone", info.Mode(), err)
		}
		if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("beside it there is a file more: %v", err)
		}
	}
}

func TestAFileThatCannotBeReplacedStays(t *testing.T) {
	folder := t.TempDir()
	taken := filepath.Join(folder, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "by another"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Replace(taken, []byte("new")); err == nil {
		t.Error("Replace() of a folder = nil, want an error")
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v, want nothing but what was there before", entries, err)
	}
	kept := filepath.Join(folder, "kept")
	if err := errors.Join(os.WriteFile(kept, []byte("old"), 0o600), os.MkdirAll(filepath.Join(kept+".new", "full"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Replace(kept, []byte("new")); err == nil {
		t.Error("Replace() with the way blocked = nil, want an error")
	}
	if got, err := os.ReadFile(kept); err != nil || string(got) != "old" {
		t.Errorf("there is %q, %v, want the old one", got, err)
	}
}
