package config_test

import (
	"os"
	"regexp"
	"testing"

	"hostler.io/hostler/agent/config"
)

// What the documentation shows is a configuration that works.
func TestTheExamplesOfTheDocumentationAreValid(t *testing.T) {
	for file, least := range map[string]int{
		"howto/addresses.md":      1,
		"howto/keep-images.md":    1,
		"api.md":                  1, // that of the network
		"explanation/shutdown.md": 5, // phases, priorities, rules, stopFirst, restartAfterBoot
		"reference/conditions.md": 1, // contention
		"kubernetes.md":           3, // those of joining and of k3s
		"plugin.md":               1, // that of its socket
	} {
		doc, err := os.ReadFile("../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(doc, -1)
		if len(examples) < least {
			t.Errorf("docs/%s has %d examples, want %d at least", file, len(examples), least)
		}
		for _, e := range examples {
			if _, err := config.Parse("docs/"+file, e[1]); err != nil {
				t.Errorf("Parse() of\n%s= %v, want it valid", e[1], err)
			}
		}
	}
}
