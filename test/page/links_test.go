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

// place is a link to a heading, of another page or of the same.
var place = regexp.MustCompile(`\]\(([^)#\s]*)#([^)\s]+)\)`)

var (
	heading  = regexp.MustCompile("(?m)^#+ (.+)$")
	stripped = regexp.MustCompile("[^a-z0-9_ -]")
)

// places are the headings of a page as links name them.
func places(t *testing.T, file string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		found[strings.ReplaceAll(stripped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

func TestLinksLeadToHeadings(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("find the documentation: %q, %v", files, err)
	}
	links := 0
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range place.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			target := file
			if l[1] != "" {
				target = filepath.Join(filepath.Dir(file), l[1])
			}
			links++
			if !places(t, target)[l[2]] {
				t.Errorf("%s leads to %s#%s, and there is no such heading", file, l[1], l[2])
			}
		}
	}
	if links < 20 {
		t.Errorf("the documentation has %d links to headings, want more: what is looked at?", links)
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
