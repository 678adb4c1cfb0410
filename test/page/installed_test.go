package page_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Links in the installed pages must work for people who have only the package.
func TestLinksOfInstalledPagesLeadToInstalledFiles(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "packaging/nfpm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Contents []struct {
			Source      string `json:"src"`
			Destination string `json:"dst"`
		} `json:"contents"`
	}
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	there, pages := map[string]bool{}, map[string]string{} // by installed path
	for _, c := range list.Contents {
		there[c.Destination] = true
		sources, err := filepath.Glob(filepath.Join(root, c.Source))
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range sources {
			to := c.Destination
			if strings.HasSuffix(to, "/") {
				to += filepath.Base(source)
			}
			there[to] = true
			if c.Source != "" && filepath.Ext(source) == ".md" {
				pages[to] = source
			}
		}
	}
	if len(pages) < 40 {
		t.Fatalf("the package has %d pages, want all of the documentation", len(pages))
	}
	for page, source := range pages {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range link.FindAllStringSubmatch(string(text), -1) {
			if to := filepath.Join(filepath.Dir(page), l[1]); !strings.Contains(l[1], "://") && !there[to] {
				t.Errorf("%s leads to %s, which the package does not install", page, to)
			}
		}
	}
}
