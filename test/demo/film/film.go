// Package film records what a program prints, and when, and draws it as an animated picture.
//
// It owns the file, asciicast version 2 (https://docs.asciinema.org/manual/asciicast/v2/), which
// `asciinema play` plays, and the drawing. It does not support a terminal's control sequences: the
// recorded program prints lines.
package film

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// The screen, in characters.
const (
	width  = 120
	height = 32
)

// Line is a printed line.
type Line struct {
	At   time.Duration // since the start
	Text string        // without the line break
}

// Film has the printed lines, in order.
type Film []Line

// Record copies what is printed until its end, and records the time of each line.
func Record(from io.Reader, to io.Writer) (Film, error) {
	var f Film
	began := time.Now()
	lines := bufio.NewReader(from)
	for {
		text, err := lines.ReadString('\n')
		if text != "" {
			f = append(f, Line{time.Since(began).Round(time.Millisecond), strings.TrimSuffix(text, "\n")})
			if _, err := io.WriteString(to, text); err != nil {
				return nil, err
			}
		}
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// header is the first line of a cast.
type header struct {
	Version int     `json:"version"`
	Width   int     `json:"width"`
	Height  int     `json:"height"`
	Idle    float64 `json:"idle_time_limit"` // seconds
}

// WriteTo writes the film as a cast.
func (f Film) WriteTo(w io.Writer) (n int64, err error) {
	var text strings.Builder
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	errs := []error{out.Encode(header{2, width, height, longest.Seconds()})}
	for _, line := range f {
		// Nobody can see more than three digits.
		at := json.RawMessage(fmt.Sprintf("%.3f", line.At.Seconds()))
		errs = append(errs, out.Encode([]any{at, "o", line.Text + "\r\n"}))
	}
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	written, err := io.WriteString(w, text.String())
	return int64(written), err
}

// Read reads a cast written by WriteTo.
func Read(r io.Reader) (Film, error) {
	in := json.NewDecoder(r)
	var h header
	if err := in.Decode(&h); err != nil {
		return nil, fmt.Errorf("read cast: header: %w", err)
	}
	if h.Version != 2 {
		return nil, fmt.Errorf("read cast: it is of version %d, want 2", h.Version)
	}
	var f Film
	for {
		var seconds float64
		var kind, text string
		err := in.Decode(&[]any{&seconds, &kind, &text})
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read cast: line %d: %w", len(f)+2, err)
		}
		line, whole := strings.CutSuffix(text, "\r\n")
		if kind != "o" || !whole {
			return nil, fmt.Errorf("read cast: line %d: it is of kind %q with %q, want a line of output", len(f)+2, kind, text)
		}
		f = append(f, Line{time.Duration(seconds * float64(time.Second)).Round(time.Millisecond), line})
	}
}
