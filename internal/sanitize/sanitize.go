// Package sanitize makes one line of text of what a program of somebody else's has said: a
// check of the administrator's own, a plugin. It owns what a terminal or a reader could be
// misled by, and refuses to know who has said it.
package sanitize

import (
	"regexp"
	"strings"
	"unicode"
)

// escapes are the sequences by which a program colours a terminal, or worse (ECMA-48).
var escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// Line is the text without what a terminal obeys, or what turns the direction of
// writing, on one line, and cut to that many bytes.
func Line(text string, maxBytes int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
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
	if len(text) <= maxBytes {
		return text
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(text[:maxBytes-len(ellipsis)], "") + ellipsis
}
