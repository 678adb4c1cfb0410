package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// width is the length of lines of prose and headings.
const width = 78

// console prints the demo and records its claims. Only one goroutine may use it.
type console struct {
	w       io.Writer
	color   bool
	started time.Time

	chapters, claims int
	wrong            []error
}

func newConsole(w *os.File) *console {
	color := term.IsTerminal(int(w.Fd())) && os.Getenv("NO_COLOR") == ""
	return &console{w: w, color: color, started: time.Now()}
}

func (c *console) paint(code, text string) string {
	if !c.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// chapter prints the heading of a chapter.
func (c *console) chapter(title string) {
	c.chapters++
	line := fmt.Sprintf("== %d. %s ", c.chapters, title)
	fmt.Fprintf(c.w, "\n%s\n", c.paint("1", line+strings.Repeat("=", max(0, width-len(line)))))
}

// chapter is a part of a demo.
type chapter struct {
	title string
	play  func(context.Context) error
}

// runChapters runs chapters in order, until a claim in one of them does not hold.
func (c *console) runChapters(ctx context.Context, chapters []chapter) error {
	for _, chapter := range chapters {
		c.chapter(chapter.title)
		if err := chapter.play(ctx); err != nil {
			return fmt.Errorf("%s: %w", chapter.title, err)
		}
		// Later chapters depend on these claims.
		if err := c.faults(); err != nil {
			return fmt.Errorf("%s: %w", chapter.title, err)
		}
	}
	return nil
}

// shown runs a command, and shows its command line and its output.
func (c *console) shown(ctx context.Context, binary string, line ...string) error {
	path := line[0]
	if path == "hostler" {
		path = binary
	}
	answer, err := run(ctx, path, line[1:]...)
	if err != nil {
		return err
	}
	c.command(strings.Join(line, " "), answer)
	return nil
}

// printf prints a paragraph.
func (c *console) printf(format string, args ...any) {
	fmt.Fprintln(c.w)
	line := ""
	for _, word := range strings.Fields(fmt.Sprintf(format, args...)) {
		if line != "" && len(line)+1+len(word) > width {
			fmt.Fprintln(c.w, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	fmt.Fprintln(c.w, line)
}

// command prints a command line as a person types it, and its output.
func (c *console) command(line, answer string) {
	fmt.Fprintf(c.w, "\n%s\n", c.paint("1", "$ "+line))
	if answer = strings.TrimRight(answer, "\n"); answer != "" {
		fmt.Fprintln(c.w, answer)
	}
}

// lines prints lines unchanged, after an empty one.
func (c *console) lines(lines ...string) {
	fmt.Fprintf(c.w, "\n%s\n", strings.Join(lines, "\n"))
}

// check prints and records whether a claim holds. If not, it also prints what was seen instead.
func (c *console) check(holds bool, claim, seen string, args ...any) {
	c.claims++
	if holds {
		fmt.Fprintf(c.w, "%s %s\n", c.paint("32;1", "[ok]"), claim)
		return
	}
	seen = fmt.Sprintf(seen, args...)
	fmt.Fprintf(c.w, "%s %s, but %s\n", c.paint("31;1", "[WRONG]"), claim, seen)
	c.wrong = append(c.wrong, fmt.Errorf("expected: %s; seen: %s", claim, seen))
}

// checks starts a list of claims.
func (c *console) checks() { fmt.Fprintln(c.w) }

// faults returns the claims that did not hold.
func (c *console) faults() error { return errors.Join(c.wrong...) }

func (c *console) failed(err error, log string) {
	fmt.Fprintf(c.w, "\n%s after %s\n%v\n", c.paint("31;1", "FAILED"), time.Since(c.started).Round(time.Second), err)
	if log != "" {
		fmt.Fprintf(c.w, "\nThe end of the log:\n%s\n", log)
	}
}

func (c *console) done() {
	fmt.Fprintf(c.w, "\n%s: %d claims checked in %s; everything that was started is ended.\n",
		c.paint("32;1", "DONE"), c.claims, time.Since(c.started).Round(time.Second))
}
