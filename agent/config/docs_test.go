package config_test

import (
	"os"
	"regexp"
	"testing"

	"hostler.io/hostler/agent/config"
)

// The examples in the documentation are valid configurations.
func TestTheExamplesOfTheDocumentationAreValid(t *testing.T) {
	for file, least := range map[string]int{
		"howto/addresses.md":      1,
		"howto/keep-images.md":    1,
		"explanation/shutdown.md": 5, // phases, priorities, rules, stopFirst, restartAfterBoot
		"reference/conditions.md": 1, // contention
		// Credentials of a kubelet, k3s, and two ways to join.
		"start/kubernetes.md":           4,
		"start/etcd.md":                 1,
		"howto/network-api.md":          1,
		"howto/control-plane-plugin.md": 1,
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
