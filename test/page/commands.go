package page

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Command is a command line that a page tells people to type.
type Command struct {
	Page string // path in the sources, such as docs/reference/api.md
	Line string // without prompt, sudo and comment; the whole text of a script
}

// Commands returns the commands in the code blocks of a page in the sources at root. In a block of
// sh, each line is a command, or the whole block if it is a script. In a block of console, each
// text after a prompt is one. Each block must name its language, so that no command is missed.
func Commands(t testing.TB, root, page string) []Command {
	t.Helper()
	var commands []Command
	for i, part := range parts(t, root, page) {
		language, block, _ := strings.Cut(part, "\n")
		switch {
		case i%2 == 0: // text between blocks
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

// Spans returns the code spans in the paragraphs of a page, some of which are commands. It also
// returns the texts after a prompt where the page shows a program's output.
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

// prompted returns the texts after a prompt.
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

// typed returns the part of a line that root types.
func typed(line string) string {
	line = comment.ReplaceAllString(strings.TrimSpace(line), "")
	return strings.TrimPrefix(line, "sudo ")
}
