// Package page reads the documentation for tests that do what it says, to the letter.
package page

import (
	"os"
	"strings"
	"testing"
)

// Blocks are the blocks of code in a language, such as "sh", in the section of a file below
// a heading of the second level. There is at least one, or the test ends.
func Blocks(t testing.TB, file, heading, language string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", file, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for {
		_, rest, more := strings.Cut(section, "\n```"+language+"\n")
		if !more {
			break
		}
		var block string
		block, section, _ = strings.Cut(rest, "\n```")
		blocks = append(blocks, block+"\n")
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no %s in section %q", file, language, heading)
	}
	return blocks
}
