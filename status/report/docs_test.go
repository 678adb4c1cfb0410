package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestEventsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`corev1\.EventType(Normal|Warning), "(\w+)"`).FindAllStringSubmatch(string(code), -1) {
			found++
			if row := regexp.MustCompile("(?m)^.*`" + m[2] + "`.* \\| " + m[1] + " \\|"); !row.Match(doc) {
				t.Errorf("docs/reference/events.md does not list Event %s (%s) of %s", m[2], m[1], file)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d Events found in the code, want all of them", found)
	}
}
