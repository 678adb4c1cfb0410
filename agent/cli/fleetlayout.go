package cli

import "strings"

const (
	// columnGap is the space between two columns, and markWidth the space before the first.
	columnGap, markWidth = 3, 2
	// shortestName is the minimum width of names.
	shortestName = 12
	// longAddress and longVersion are the maximum widths of these columns.
	longAddress, longVersion = 17, 14
)

// layout has the widths of the columns, so that a list of hosts fits the screen.
type layout struct{ name, state, lease, address int }

func layoutOf(seen []hostRow) layout {
	l := layout{name: shortestName, state: len("STATUS"), lease: len("LEASE"), address: len("ADDRESS")}
	version := len("VERSION")
	for _, s := range seen {
		l.name = max(l.name, columns(s.name))
		l.state = max(l.state, columns(s.state))
		l.lease = max(l.lease, columns(s.lease.String()))
		l.address = max(l.address, columns(s.address))
		version = max(version, columns(s.version))
	}
	l.address, version = min(l.address, longAddress), min(version, longVersion)
	rest := markWidth + l.state + l.lease + l.address + version + 4*columnGap
	l.name = max(shortestName, min(l.name, screenWidth-rest))
	return l
}

// row prints a host on one or more lines. A name that is too long has its own line, and text that
// is too wide is wrapped.
func (l layout) row(out *output, mark string, s hostRow, lease string) []string {
	paint := func(text string) string { return text }
	switch s.severity {
	case leaseExpired, noPods, pressed:
		paint = out.red
	case noProblem, info:
	default:
		paint = out.yellow
	}
	gap := strings.Repeat(" ", columnGap)
	if columns(s.name) > l.name {
		long := wrap(s.name, screenWidth-markWidth)
		lines := []string{mark + long[0]}
		for _, part := range long[1:] {
			lines = append(lines, strings.Repeat(" ", markWidth)+part)
		}
		s.name = ""
		return append(lines, l.row(out, strings.Repeat(" ", markWidth), s, lease)...)
	}
	cells := []struct {
		text  string
		width int
	}{
		{s.name, l.name}, {s.state, l.state}, {lease, l.lease}, {s.address, l.address}, {s.version, 0},
	}
	var lines []string
	line, at := mark, markWidth
	for i, c := range cells {
		text := c.text
		if text == "" && i > 0 {
			text = "-"
		}
		if at+columns(text) > screenWidth {
			lines = append(lines, strings.TrimRight(line, " "))
			line = strings.Repeat(" ", markWidth+shortestName+columnGap)
			at = columns(line)
		}
		shown := text
		if red := s.lease.leaseState == expired || s.lease.leaseState == ended; i == 1 || i == 2 && red {
			shown = paint(text)
		}
		line += pad(shown, c.width) + gap
		at += max(columns(text), c.width) + columnGap
	}
	return append(lines, strings.TrimRight(line, " "))
}
