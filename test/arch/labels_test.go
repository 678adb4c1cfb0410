package arch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryLabelIsDocumented compares the keys of hostler's domain in the code with
// docs/reference/labels.md. Condition types begin with a capital letter.
func TestEveryLabelIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/labels.md")
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`"(hostler\.io/[a-z][a-z-]*)"`)
	found := 0
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "test" || d.Name() == "dist" || d.Name() == "runtimetest" || d.Name() == ".git"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range key.FindAllSubmatch(source, -1) {
			found++
			if !strings.Contains(string(page), "`"+string(m[1])+"`") {
				t.Errorf("%s has %s, which docs/reference/labels.md does not explain", path, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 10 {
		t.Errorf("%d keys found, want all", found)
	}
}
