package unit_test

import (
	"os"
	"testing"

	"hostler.io/hostler/test/lab/unit"
)

// Each exception is a directive of the file, and has a reason. test/e2e checks that all other
// directives are applied.
func TestWhatIsLeftOutIsInTheFile(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/hostler.service")
	if err != nil {
		t.Fatal(err)
	}
	directives := unit.Directives(string(text))
	if len(directives) < 30 || len(directives["SystemCallFilter"]) != 2 {
		t.Fatalf("Directives() = %v, want all of hostler.service", directives)
	}
	for name, e := range unit.Exceptions() {
		if _, found := directives[name]; !found {
			t.Errorf("Exceptions() has %s, which hostler.service does not say", name)
		}
		if e.Reason == "" {
			t.Errorf("Exceptions() gives no reason for %s", name)
		}
	}
}
