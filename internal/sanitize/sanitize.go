// Package sanitize is where text of others enters, and where text leaves for a terminal or a log.
//
// Names, labels, annotations and messages come from whoever built an image, made a pod, or runs
// another host. Clean bounds all text of a value that a runtime or a control plane returned, and
// leaves nothing in it that a terminal obeys or that misleads a reader. Line does so for the output
// of a program. Writer and Handler are the last barrier: what enters at another place, such as the
// text of an error, does not reach a terminal or a log raw either.
package sanitize

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escapes are the sequences by which a program colours a terminal, or worse (ECMA-48).
var escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])`)

// Text is the text with a blank instead of each character that ends a line, and a question mark
// instead of each other one that is not printable. A text of more than maxBytes is cut, and says so.
func Text(text string, maxBytes int) string {
	if len(text) > maxBytes {
		mark := fmt.Sprintf("…(cut, %d bytes)", len(text))
		return printable(text[:max(0, maxBytes-len(mark))]) + mark
	}
	return printable(text)
}

// isPrintable is false for what a terminal obeys, what ends a line, what turns the direction of
// writing, and what cannot be seen.
func isPrintable(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= ' ' && r != 0x7f
	}
	return unicode.IsPrint(r)
}

// printable returns a text that is no longer than the one given, and the same one if that is printable.
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
