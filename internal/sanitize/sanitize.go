// Package sanitize cleans text from outside, and text for a terminal or a log.
//
// Names, labels, annotations and messages come from the authors of images and pods, and from other
// hosts. Clean bounds all text of a value that a runtime or a control plane returned. It removes
// control characters and sequences that a terminal obeys or that mislead a reader. Line does the
// same for the output of a program. Writer and Handler are the last barrier before a terminal or a
// log. They clean text that came another way, such as the text of an error.
package sanitize

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escapes matches the sequences that control a terminal, such as colors (ECMA-48).
var escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// Text replaces each character that ends a line by a blank, and each other character that is not
// printable by a question mark. It cuts a text of more than maxBytes, and says so in the text.
func Text(text string, maxBytes int) string {
	if len(text) > maxBytes {
		mark := fmt.Sprintf("…(cut, %d bytes)", len(text))
		return printable(text[:max(0, maxBytes-len(mark))]) + mark
	}
	return printable(text)
}

// isPrintable returns false for characters that control a terminal, end a line, change the writing
// direction, or are invisible.
func isPrintable(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= ' ' && r != 0x7f
	}
	return unicode.IsPrint(r)
}

// printable returns the text with characters replaced; it is never longer. If the text is
// printable, it is returned unchanged.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case isPrintable(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, strings.ToValidUTF8(text, "?"))
}

// Line returns the text on one line, cut to maxBytes, without terminal sequences and characters
// that change the writing direction.
func Line(text string, maxBytes int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = escapes.ReplaceAllString(text, "")
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case !unicode.IsPrint(r): // such as characters that change the writing direction
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
