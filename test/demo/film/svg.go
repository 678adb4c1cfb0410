package film

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"
)

// The pauses between lines are those of the recording, but not shorter than the first value, which
// is needed to read a line, and not longer than the second. The last screen stays for the third.
const (
	shortest = 150 * time.Millisecond
	longest  = 2 * time.Second
	hold     = 6 * time.Second
)

// The size of a character in the picture and the margin of the screen, in pixels.
const (
	charWidth  = 7.2
	lineHeight = 16
	margin     = 12
)

// looks are the styles of lines, by their beginning.
var looks = [...]struct{ begins, attributes string }{
	{"== ", ` fill="#ffffff" font-weight="bold"`},
	{"$ ", ` fill="#ffffff" font-weight="bold"`},
	{"[ok] ", ` fill="#7ec699"`},
	{"[WRONG] ", ` fill="#f08d8d" font-weight="bold"`},
}

// SVG draws the film as an animated picture: a screen into which lines scroll from below, in a
// loop. Without animation, such as on paper, it shows the last screen.
func (f Film) SVG() string {
	var rows, offsets, times strings.Builder
	total := f.length()
	row, at := 0, time.Duration(0)
	for i, line := range f {
		if i > 0 {
			at += f.pause(i)
		}
		for _, part := range wrap(line.Text) {
			fmt.Fprintf(&rows, `<text y="%d"%s>%s</text>`+"\n", (row+1)*lineHeight-4, attributesOf(line.Text), escape(part))
			row++
		}
		if i > 0 {
			offsets.WriteByte(';')
			times.WriteByte(';')
		}
		fmt.Fprintf(&offsets, "0 %d", offset(row))
		fmt.Fprintf(&times, "%.5f", at.Seconds()/total.Seconds())
	}
	w, h := int(width*charWidth), height*lineHeight
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="monospace" font-size="12" role="img">
<rect width="%[1]d" height="%[2]d" rx="6" fill="#1d1f21"/>
<svg x="%[3]d" y="%[3]d" width="%[4]d" height="%[5]d">
<g fill="#c5c8c6" xml:space="preserve" transform="translate(0 %[6]d)">
<animateTransform attributeName="transform" type="translate" calcMode="discrete" repeatCount="indefinite" dur="%.2[7]fs" values="%[8]s" keyTimes="%[9]s"/>
%[10]s</g>
</svg>
</svg>
`, w+2*margin, h+2*margin, margin, w, h, offset(row), total.Seconds(), offsets.String(), times.String(), rows.String())
	return out.String()
}

// offset returns the position of the rows when that many of them have been printed: the last one is
// the last row of the screen.
func offset(rows int) int { return (height - rows) * lineHeight }

// pause returns the pause before line i.
func (f Film) pause(i int) time.Duration {
	return min(max(f[i].At-f[i-1].At, shortest), longest)
}

// length returns the duration of one loop.
func (f Film) length() time.Duration {
	total := hold
	for i := 1; i < len(f); i++ {
		total += f.pause(i)
	}
	return total
}

// wrap breaks a line as a terminal does.
func wrap(text string) []string {
	characters := []rune(text)
	var parts []string
	for len(characters) > width {
		parts = append(parts, string(characters[:width]))
		characters = characters[width:]
	}
	return append(parts, string(characters))
}

func attributesOf(text string) string {
	for _, l := range looks {
		if strings.HasPrefix(text, l.begins) {
			return l.attributes
		}
	}
	return ""
}

func escape(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a Builder accepts all writes
	return out.String()
}
