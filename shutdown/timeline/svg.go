package timeline

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// Sizes in pixels.
const (
	laneHeight = 18
	barsWidth  = 560
	nameWidth  = 280 // for 40 characters; longer names are cut
	phaseWidth = 90
	top        = 46
	gap        = 8
)

// colors can be distinguished by people with colour blindness. The outcome is also written as text.
var colors = map[string]string{
	"stopped": "#0072b2",
	"killed":  "#e69f00",
	"left":    "#d55e00",
	Service:   "#009e73",
	"":        "#999999",
}

// SVG writes the timeline as a standalone image with a title. It does not use templates: with
// templates the linker keeps every method of every type.
func (t Timeline) SVG(w io.Writer, title string) error {
	const left = 8 + phaseWidth + nameWidth
	bottom := top + len(t.Lanes)*laneHeight
	width, height := left+barsWidth+90, bottom+gap
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="monospace" font-size="12" role="img">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n"+`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", escaped(title), width, height)
	text(&b, 8, 16, "#000000", title)
	for at := time.Duration(0); at <= t.Length; at += step(t.Length) {
		x := left + t.pixels(at)
		fmt.Fprintf(&b, `<line x1="%[1]g" y1="34" x2="%[1]g" y2="%[2]d" stroke="#dddddd"/><text x="%[1]g" y="30" text-anchor="middle" fill="#555555">%[3]s</text>`+"\n", x, bottom, at)
	}
	for i, l := range t.Lanes {
		y := top + i*laneHeight
		tip := l.Name + ": " + l.Outcome
		if l.Requested {
			tip += fmt.Sprintf(", stop requested after %s, took %s", rounded(l.From), rounded(l.To-l.From))
		}
		fmt.Fprintf(&b, "<g><title>%s</title>\n", escaped(tip))
		text(&b, 8, y+10, "#555555", l.Phase)
		text(&b, 8+phaseWidth, y+10, "#000000", shortened(l.Name, nameWidth/7-1))
		if l.Requested {
			bar(&b, left+t.pixels(l.From), y, t.pixels(l.Grace-l.From), "#eeeeee")
			bar(&b, left+t.pixels(l.From), y, max(1, t.pixels(l.To-l.From)), colors[l.Outcome])
		}
		text(&b, left+barsWidth+gap, y+10, "#000000", l.Outcome)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// pixels returns the width of a duration.
func (t Timeline) pixels(d time.Duration) float64 {
	if t.Length <= 0 {
		return 0
	}
	return math.Round(float64(d)/float64(t.Length)*barsWidth*10) / 10
}

func text(b *strings.Builder, x, y int, color, s string) {
	if s != "" {
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", x, y, color, escaped(s))
	}
}

func bar(b *strings.Builder, x float64, y int, width float64, color string) {
	fmt.Fprintf(b, `<rect x="%g" y="%d" width="%g" height="12" fill="%s"/>`+"\n", x, y, width, color)
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}

// step returns the distance of the marks on the time axis: a round time, with at most twelve marks.
func step(length time.Duration) time.Duration {
	for _, s := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute} {
		if length/s < 11 {
			return s
		}
	}
	return max(length/10, time.Second).Round(time.Minute) + time.Minute
}
