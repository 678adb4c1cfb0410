package config_test

import (
	"os"
	"regexp"
	"testing"

	"hostler.io/hostler/agent/config"
)

// What docs/shutdown.md shows is a configuration that works.
func TestTheExamplesOfTheDocumentationAreValid(t *testing.T) {
	doc, err := os.ReadFile("../../docs/shutdown.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(doc, -1)
	if len(examples) < 3 {
		t.Errorf("docs/shutdown.md has %d examples, want those of periods, priorities and rules", len(examples))
	}
	for _, e := range examples {
		if _, err := config.Parse("docs/shutdown.md", e[1]); err != nil {
			t.Errorf("Parse() of\n%s= %v, want it valid", e[1], err)
		}
	}
}
