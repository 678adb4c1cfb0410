package cli

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

// screenWidth is the minimum width of a terminal.
const screenWidth = 80

// columns is the number of terminal columns that text takes, without colour codes.
func columns(text string) int {
	return widths().StringWidth(strings.NewReplacer(red, "", green, "", yellow, "", plain, "").Replace(text))
}

// widths measures characters in the same way in every environment: runewidth's own functions
// depend on the locale.
func widths() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

// wrap breaks text into lines of at most limit columns. It keeps line breaks, and breaks at spaces.
// It breaks a word only if the word is longer than a line. An etcd command has its own line and is
// never broken, so that users can copy it.
func wrap(text string, limit int) []string {
	var lines []string
	for own := range strings.Lines(separate(text)) {
		if own = strings.TrimSuffix(own, "\n"); isCommand(own) {
			lines = append(lines, own)
			continue
		}
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

// fitting returns the longest prefix of a word that fits into limit columns.
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
		if n += widths().RuneWidth(r); n > limit {
			return word[:i]
		}
	}
	return word
}

// pad appends spaces to text.
func pad(text string, to int) string {
	return text + strings.Repeat(" ", max(0, to-columns(text)))
}
