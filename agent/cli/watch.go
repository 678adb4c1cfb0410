package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/internal/sanitize"
)

// watchShare is the least ratio of a watch's pause to the time of a request, so that a watch of a
// large fleet uses a tenth of the time of its control plane.
const watchShare = 9

// watch is an answer that is shown again and again: in place on a terminal, else one
// after the other.
type watch struct {
	app    *app
	out    *output
	screen bytes.Buffer // the screen, on a terminal
	shown  string       // there
	drawn  time.Time    // last; zero before the first answer
	lost   bool         // nobody answers
}

// redraw draws until ctx ends, which is how a watch ends, or drawing fails. An agent that
// ends under a watch, as when it is restarted, is waited for.
func (a *app) redraw(ctx context.Context, out *output, draw func(context.Context) error) error {
	w := &watch{app: a, out: out}
	if a.terminal() {
		out.w = printable(&w.screen)
	}
	for {
		started := time.Now()
		if !a.terminal() && !w.drawn.IsZero() && !w.lost {
			fmt.Fprint(a.Stdout, between(out.format))
		}
		unreachable := new(api.UnreachableError)
		err := draw(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &unreachable) && !w.drawn.IsZero():
			w.wait(unreachable)
		case err != nil:
			return err
		default:
			w.drawn, w.lost = a.Now(), false
			w.show()
		}
		select {
		case <-time.After(max(cmp.Or(a.WatchInterval, 2*time.Second), watchShare*time.Since(started))):
		case <-ctx.Done():
			return nil
		}
	}
}

// between is what parts one answer from the next where all are kept.
func between(format string) string {
	switch format {
	case "json": // whose values need nothing between them
		return ""
	case "yaml":
		return "---\n"
	}
	return "\n"
}

// show draws the output on a terminal; elsewhere it is already printed.
func (w *watch) show() {
	if !w.app.terminal() {
		return
	}
	w.shown = w.screen.String()
	w.screen.Reset()
	w.draw(w.shown)
}

// wait shows that the agent does not answer, above the last output; elsewhere it prints that once.
func (w *watch) wait(why *api.UnreachableError) {
	first := !w.lost
	w.lost = true
	notice := sanitize.Text(fmt.Sprintf("no agent answers at %s (%v): retrying", why.Socket, why.Cause), sanitize.MaxText)
	w.screen.Reset()
	switch {
	case w.app.terminal():
		w.draw(w.out.yellow(fmt.Sprintf("%s; showing the state of %s", notice, w.drawn.Format(time.TimeOnly))) + "\n\n" + w.shown)
	case first:
		fmt.Fprintf(w.app.Stderr, "hostler: %s\n", notice)
	}
}

// draw replaces the screen. Tables that are too long are cut at the end, where the least important
// rows are.
func (w *watch) draw(screen string) {
	lines, columns := w.app.size()
	if w.out.format != "table" && !w.out.wide() {
		lines = 0
	}
	fmt.Fprint(w.app.raw.Stdout, inPlace(screen, lines, columns))
}

// inPlace draws a screen from the upper left, clears the rest of each line and everything below. It
// does not clear the terminal first, which would flicker, and sets no mode that it must reset. Zero
// lines mean no limit.
func inPlace(screen string, height, wide int) string {
	lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
	if height > 1 {
		lines = fittingLines(lines, height-1, wide) // the cursor is on the last line
	}
	var drawn strings.Builder
	for _, line := range lines {
		drawn.WriteString(line)
		if !fills(line, wide) {
			drawn.WriteString(restOfLine)
		}
		drawn.WriteString("\n")
	}
	return home + drawn.String() + restOfScreen
}

// fills reports whether a line ends at a terminal's last column. The cursor stays there, so
// that ending the row would take the character with it.
func fills(line string, wide int) bool {
	n := columns(line)
	return wide > 0 && n > 0 && n%wide == 0
}

// fittingLines leaves as many lines as there are rows for, and says how many more there are.
func fittingLines(lines []string, rows, wide int) []string {
	taken := 0
	for i, line := range lines {
		taken += rowsOf(line, wide)
		if taken < rows || taken == rows && i == len(lines)-1 {
			continue
		}
		more := fmt.Sprintf("... %s more; enlarge the terminal to see them", count(len(lines)-i, "line"))
		if wide > 0 {
			more = fitting(more, wide) // a second row would push the first line out
		}
		return append(lines[:i:i], more)
	}
	return lines
}

// rowsOf is how many rows of a terminal a line takes.
func rowsOf(line string, wide int) int {
	if wide <= 0 {
		return 1
	}
	return max(1, (columns(line)+wide-1)/wide)
}

// size is how many lines and columns the terminal has; 0 where there is none.
func (a *app) size() (lines, columns int) {
	f, ok := a.raw.Stdout.(*os.File)
	if !ok {
		return 0, 0
	}
	columns, lines, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return lines, columns
}
