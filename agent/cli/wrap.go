package cli

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// screenWidth is what every terminal has.
const screenWidth = 80

// columns is how many columns of a terminal text takes: two for a wide character,
// none for one that is drawn over the one before, nor for a change of colour.
func columns(text string) int {
	n, escape := 0, false
	for _, r := range text {
		switch {
		case escape:
			escape = r != 'm'
		case r == '\x1b':
			escape = true
		default:
			n += columnsOf(r)
		}
	}
	return n
}

func columnsOf(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// wrap breaks text into lines of at most limit columns: where it has lines of its own, at
// blanks where it can, and within a word that no line can take.
func wrap(text string, limit int) []string {
	var lines []string
	for own := range strings.Lines(text) {
		lines = append(lines, wrapLine(own, limit)...)
	}
	if len(lines) == 0 {
		return []string{""}
	}
	return lines
}

func wrapLine(text string, limit int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && columns(line)+1+columns(word) <= limit {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for columns(word) > limit {
			head := fitting(word, limit)
			lines, word = append(lines, head), word[len(head):]
		}
		line = word
	}
	return append(lines, line)
}

// fitting is as much of the beginning of a word as limit columns take.
func fitting(word string, limit int) string {
	n, escape := 0, false
	for i, r := range word {
		switch {
		case escape:
			escape = r != 'm'
			continue
		case r == '\x1b':
			escape = true
			continue
		}
		if n += columnsOf(r); n > limit {
			return word[:i]
		}
	}
	return word
}

// pad fills text up with blanks.
func pad(text string, to int) string {
	return text + strings.Repeat(" ", max(0, to-columns(text)))
}
