package sanitize

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Writer passes text on to a terminal or a file. It removes control characters except newlines,
// tabs and the sequences of the program itself.
type Writer struct {
	W     io.Writer
	Allow []string // sequences of the program itself, such as colors
}

// Write cleans p and writes it. p must not end within a character or a sequence.
func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.W, w.clean(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w Writer) clean(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !w.passes(r) }) {
		return text
	}
	var clean strings.Builder
next:
	for text != "" {
		for _, own := range w.Allow {
			if strings.HasPrefix(text, own) {
				clean.WriteString(own)
				text = text[len(own):]
				continue next
			}
		}
		r, size := utf8.DecodeRuneInString(text)
		if w.passes(r) {
			clean.WriteString(text[:size])
		} else {
			clean.WriteByte('?')
		}
		text = text[size:]
	}
	return clean.String()
}

func (w Writer) passes(r rune) bool {
	return r == '\n' || r == '\t' || r != utf8.RuneError && isPrintable(r)
}
