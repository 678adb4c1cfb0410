package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/internal/sanitize"
)

// output prints an answer in the requested format.
type output struct {
	w       io.Writer
	format  string
	color   bool
	now     func() time.Time
	version string // of this program
}

func (a *app) output(format string) (*output, error) {
	switch format {
	case "table", "wide", "json", "yaml":
	default:
		return nil, usageError(fmt.Sprintf("unknown output format %q\nhint: use -o table, wide, json or yaml", format))
	}
	return &output{w: a.Stdout, format: format, color: a.terminal() && a.Getenv("NO_COLOR") == "", now: a.Now, version: a.Version}, nil
}

// terminal reports whether the output is a terminal that supports colours and cursor movement.
func (a *app) terminal() bool {
	f, ok := a.raw.Stdout.(*os.File)
	return ok && a.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// wide reports whether all columns were requested.
func (o *output) wide() bool { return o.format == "wide" }

// print writes v as JSON or YAML, or calls human to write a table.
func (o *output) print(v any, human func(t *table)) error {
	switch o.format {
	case "json", "yaml":
		b, err := encoded(v, o.format)
		if err != nil {
			return fmt.Errorf("write %s: %w", strings.ToUpper(o.format), err)
		}
		_, err = o.w.Write(b)
		return err
	}
	t := &table{w: tabwriter.NewWriter(o.w, 0, 8, 3, ' ', 0)}
	human(t)
	return t.w.Flush()
}

// encoded returns v as JSON or YAML.
func encoded(v any, format string) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	if format == "yaml" {
		return yaml.JSONToYAML(b)
	}
	return append(b, '\n'), nil
}

// table writes lines of text, and rows with columns.
type table struct {
	w     *tabwriter.Writer
	shown []string // etcd commands that this screen already shows
}

// line ends the current columns and writes a line of text.
func (t *table) line(format string, args ...any) {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	_ = t.w.Flush() // the last Flush reports a failed write, too
	fmt.Fprintln(t.w, format)
	_ = t.w.Flush()
}

// cellEnds replaces characters that would end a cell or a row.
var cellEnds = strings.NewReplacer("\t", " ", "\n", " ")

// row writes cells, aligned with those of the previous rows.
func (t *table) row(cells ...string) {
	for i, c := range cells {
		if strings.TrimSpace(c) == "" && i < len(cells)-1 { // an empty first cell is indentation
			c += "-"
		}
		cells[i] = cellEnds.Replace(c)
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

// section returns a function that writes rows. Before the first row, it writes an empty line and
// the head.
func (t *table) section(head ...string) func(cells ...string) {
	headed := false
	return func(cells ...string) {
		if !headed {
			t.line("")
			t.row(head...)
			headed = true
		}
		t.row(cells...)
	}
}

// Colour codes.
const (
	red    = "\x1b[31;1m"
	green  = "\x1b[32;1m"
	yellow = "\x1b[33;1m"
	plain  = "\x1b[0m"
)

// showLine replaces the last line of a terminal. The line has no newline.
func (a *app) showLine(text string) {
	fmt.Fprint(a.raw.Stdout, clearLine)
	fmt.Fprint(a.Stdout, text)
}

// Codes that move the cursor or clear a part of the terminal.
const (
	home         = "\x1b[H"
	restOfLine   = "\x1b[K"
	restOfScreen = "\x1b[J"
	clearLine    = "\r" + restOfLine
)

// printable returns a writer that drops control characters except newlines, tabs and colours. Names
// and messages may come from other hosts and from authors of images.
func printable(w io.Writer) io.Writer {
	return sanitize.Writer{W: w, Allow: []string{red, green, yellow, plain}}
}

// red, green and yellow colour text if the output is a terminal.
func (o *output) red(s string) string    { return o.paint(red, s) }
func (o *output) green(s string) string  { return o.paint(green, s) }
func (o *output) yellow(s string) string { return o.paint(yellow, s) }

func (o *output) paint(code, s string) string {
	if !o.color {
		return s
	}
	return code + s + plain
}

// ago returns how long ago t was, in kubectl's format: 5s, 3m20s, 2h, 4d.
func (o *output) ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return age(o.now().Sub(t)) + " ago"
}

func age(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// size formats bytes.
func size[N int64 | uint64](n N) string { return gc.Size(uint64(n)) }

// short shortens an ID. The rest still identifies the object.
func short(id string) string {
	if _, digest, ok := strings.Cut(id, ":"); ok && !strings.Contains(digest, "/") {
		id = digest
	}
	return id[:min(len(id), 12)]
}

// count returns a number with its noun: 1 image, 2 images.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// warn writes a message above the answer, unless it is empty.
func warn(t *table, message string) {
	if message != "" {
		t.line("incomplete: %s", message)
	}
}
