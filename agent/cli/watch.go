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

// watchShare is the minimum ratio of the pause to the time of a request. So a watch of a large
// fleet loads the control plane for at most a tenth of the time.
const watchShare = 9

// watch shows an answer repeatedly: in place on a terminal, otherwise one after the other.
type watch struct {
	app    *app
	out    *output
	screen bytes.Buffer // next screen, on a terminal
	shown  string       // current screen
	drawn  time.Time    // time of the last answer; zero before the first one
	lost   bool         // the agent does not answer
}

// redraw calls draw repeatedly until ctx ends, which is the normal end of a watch, or draw fails.
// If the agent stops during the watch, redraw waits until it runs again.
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

// between returns the separator of two answers when the output is not in place.
func between(format string) string {
	switch format {
	case "json": // JSON values need no separator
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

// wait shows above the last output that the agent does not answer. Without a terminal, it prints
// that once.
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

// inPlace returns the codes that draw a screen from the upper left, and clear the rest of each line
// and everything below. It does not clear the terminal first, which would flicker. It sets no
// terminal mode. A height of 0 means no limit.
func inPlace(screen string, height, wide int) string {
	lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
	if height > 1 {
		lines = fittingLines(lines, height-1, wide) // the cursor needs the last line
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

// fills reports whether a line ends at the last column of a terminal. The cursor stays there, so
// clearing the rest of the row would erase the last character.
func fills(line string, wide int) bool {
	n := columns(line)
	return wide > 0 && n > 0 && n%wide == 0
}

// fittingLines returns the lines that fit, and a last line with the number of other lines.
func fittingLines(lines []string, rows, wide int) []string {
	taken := 0
	for i, line := range lines {
		taken += rowsOf(line, wide)
		if taken < rows || taken == rows && i == len(lines)-1 {
			continue
		}
		more := fmt.Sprintf("... %s more; enlarge the terminal to see them", count(len(lines)-i, "line"))
		if wide > 0 {
			more = fitting(more, wide) // a second row would scroll the first line away
		}
		return append(lines[:i:i], more)
	}
	return lines
}

// rowsOf returns how many rows of a terminal a line needs.
func rowsOf(line string, wide int) int {
	if wide <= 0 {
		return 1
	}
	return max(1, (columns(line)+wide-1)/wide)
}

// size returns the lines and columns of the terminal; 0 without a terminal.
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
