package page

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Command is what a page has people type.
type Command struct {
	Page string // its path in the sources, such as docs/reference/api.md
	Line string // without prompt, sudo and comment; all of a script that people write
}

// Commands are those in the blocks of a page of the sources at root: each line of a block in
// sh, or all of it where it is a script, and in one in console what stands behind a prompt.
// So that none hides, each block has to say what it is in.
func Commands(t testing.TB, root, page string) []Command {
	t.Helper()
	var commands []Command
	for i, part := range parts(t, root, page) {
		language, block, _ := strings.Cut(part, "\n")
		switch {
		case i%2 == 0: // between blocks
		case language == "":
			t.Errorf("%s has a block that does not say what it is in, sh and console of what is typed:\n%s", page, block)
		case language == "sh" && strings.HasPrefix(block, "#!"):
			commands = append(commands, Command{page, block})
		case language == "sh":
			for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", "")) {
				if line = typed(line); line != "" {
					commands = append(commands, Command{page, line})
				}
			}
		case language == "console":
			for _, line := range prompted(block) {
				commands = append(commands, Command{page, line})
			}
		}
	}
	return commands
}

// Spans are the pieces of code in the paragraphs of a page, of which some are commands, and
// what stands behind a prompt where the page shows what a program has printed.
func Spans(t testing.TB, root, page string) []string {
	t.Helper()
	var spans []string
	for i, part := range parts(t, root, page) {
		if i%2 == 1 {
			if printed, ok := strings.CutPrefix(part, "text\n"); ok {
				spans = append(spans, prompted(printed)...)
			}
			continue
		}
		for _, code := range span.FindAllStringSubmatch(part, -1) {
			spans = append(spans, typed(strings.ReplaceAll(code[1], `\|`, "|"))) // a table escapes a pipe
		}
	}
	return spans
}

var (
	span    = regexp.MustCompile("`([^`\n]+)`")
	comment = regexp.MustCompile(`(^|\s+)#(\s.*)?$`)
)

// parts are a page's paragraphs and blocks in turn.
func parts(t testing.TB, root, page string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "```")
}

// prompted are the lines behind a prompt.
func prompted(block string) (lines []string) {
	for line := range strings.Lines(block) {
		for _, prompt := range []string{"$ ", "# "} {
			if rest, ok := strings.CutPrefix(line, prompt); ok && typed(rest) != "" {
				lines = append(lines, typed(rest))
			}
		}
	}
	return lines
}

// typed is what root types of a line.
func typed(line string) string {
	line = comment.ReplaceAllString(strings.TrimSpace(line), "")
	return strings.TrimPrefix(line, "sudo ")
}
