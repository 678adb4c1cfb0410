// Package page reads the documentation for tests that run exactly what it says.
package page

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Files returns the paths of all pages in the sources at root: those of docs and its folders, by
// name, and README.md. They begin with root.
func Files(t testing.TB, root string) []string {
	t.Helper()
	files := []string{filepath.Join(root, "README.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 2 {
		t.Fatalf("find the documentation: %q, %v", files, err)
	}
	return files
}

// Blocks returns the code blocks in a language, such as "sh", of a section with a second-level
// heading. If there is none, it ends the test.
func Blocks(t testing.TB, file, heading, language string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", file, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	fence := regexp.MustCompile("(?ms)^( *)```" + language + "\n(.*?)^ *```")
	for _, block := range fence.FindAllStringSubmatch(section, -1) { // a block in a list is indented
		blocks = append(blocks, strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n")[1:])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no %s in section %q", file, language, heading)
	}
	return blocks
}
