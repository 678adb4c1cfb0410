package conditions

import (
	"regexp"
	"strings"
	"unicode"
)

// messageBytes is the most that a message may have: an Event takes 1024 with what
// stands around it.
const messageBytes = 512

// escapes are the sequences by which a program colours a terminal, or worse (ECMA-48).
var escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// harmless makes one line of text of whatever a check printed: without what a terminal
// or a reader could be misled by, and not too long.
func harmless(line []byte) string {
	text := strings.ToValidUTF8(string(line), "\uFFFD")
	text = escapes.ReplaceAllString(text, "")
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case !unicode.IsPrint(r): // such as those that turn the direction of writing
			return -1
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= messageBytes {
		return text
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(text[:messageBytes-len(ellipsis)], "") + ellipsis
}
