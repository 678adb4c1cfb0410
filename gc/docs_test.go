package gc_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestTheDocsExplainEveryReason(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	docs := read("../docs/howto/disk-full.md") + read("../docs/explanation/collection.md")
	reasons := regexp.MustCompile(`Reason += "([^"]+)"`).FindAllStringSubmatch(read("decision.go"), -1)
	if len(reasons) < 15 {
		t.Fatalf("decision.go has %d reasons, want them all found", len(reasons))
	}
	for _, reason := range reasons {
		if !strings.Contains(docs, "`"+reason[1]+"`") {
			t.Errorf("neither docs/howto/disk-full.md nor docs/explanation/collection.md explains %q", reason[1])
		}
	}
}
