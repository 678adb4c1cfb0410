package page_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hostler.io/hostler/test/page"
)

// link matches the target of a link, without the heading.
var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	top, err := filepath.Glob("../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	files := append(top, page.Files(t, "../..")...)
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

// place matches a link to a heading, of this page or another.
var place = regexp.MustCompile(`\]\(([^)#\s]*)#([^)\s]+)\)`)

var (
	heading  = regexp.MustCompile("(?m)^#+ (.+)$")
	stripped = regexp.MustCompile("[^a-z0-9_ -]")
)

// places returns the headings of a page as links name them.
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
	links := 0
	for _, file := range page.Files(t, "../..") {
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
		t.Errorf("the documentation has %d links to headings, want more: the test does not find them", links)
	}
}

// The index leads from README.md to each page.
func TestTheIndexLeadsToEachPage(t *testing.T) {
	const docs = "../../docs"
	index, err := os.ReadFile(docs + "/index.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "](docs/index.md)") {
		t.Error("README.md has no link to docs/index.md")
	}
	for _, file := range page.Files(t, "../..")[1:] {
		name, err := filepath.Rel(docs, file)
		if err != nil {
			t.Fatal(err)
		}
		if name != "index.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/index.md has no link to %s", name)
		}
	}
	if lines := strings.Count(string(readme), "\n"); lines > 100 {
		t.Errorf("README.md has %d lines, want what fits on a screen or two", lines)
	}
}
