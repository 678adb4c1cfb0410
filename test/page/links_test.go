package page_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// link is where a page leads to, but for the place in it.
var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("find %s: %q, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), l[1])); err != nil {
				t.Errorf("%s leads to %s: %v", file, l[1], err)
			}
		}
	}
}

// Each page is one that a reader of README.md comes to.
func TestTheReadmeLeadsToEachPage(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("find the pages: %q, %v", pages, err)
	}
	for _, p := range pages {
		if name := "docs/" + filepath.Base(p); !strings.Contains(string(text), "]("+name+")") {
			t.Errorf("README.md does not name %s", name)
		}
	}
	if lines := strings.Count(string(text), "\n"); lines > 100 {
		t.Errorf("README.md has %d lines, want what fits on a screen or two", lines)
	}
}
