package film_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/test/demo/film"
)

var update = flag.Bool("update", false, "draw docs/demo.svg anew from docs/demo.cast")

// Paths of documentation files, relative to this package.
const (
	castFile    = "../../../docs/demo.cast"
	pictureFile = "../../../docs/demo.svg"
	textFile    = "../../../docs/demo.txt"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestACastIsReadAsItWasWritten(t *testing.T) {
	f := film.Film{{0, ""}, {1500 * time.Millisecond, `$ echo "<&>" ä`}, {2 * time.Second, "no end"}}
	var text strings.Builder
	if _, err := f.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	if want := `{"version":2,"width":120,"height":32,"idle_time_limit":2}` + "\n" + `[0.000,"o","\r\n"]` + "\n"; !strings.HasPrefix(text.String(), want) {
		t.Errorf("WriteTo() = %s, want it to begin %s", text.String(), want)
	}
	if got, err := film.Read(strings.NewReader(text.String())); err != nil || !slices.Equal(got, f) {
		t.Errorf("Read() = %v, %v, want %v", got, err, f)
	}
	for _, bad := range []string{"", "{", `{"version":3}`, `{"version":2} [0,"i","x\r\n"]`, `{"version":2} [0,"o","x"]`, `{"version":2} ["0","o","x\r\n"]`} {
		if got, err := film.Read(strings.NewReader(bad)); err == nil {
			t.Errorf("Read(%s) = %v, want an error", bad, got)
		}
	}
}

func TestWhatIsPrintedIsFilmedAndPassedOn(t *testing.T) {
	const text = "first\n\nlast, without an end"
	var out strings.Builder
	f, err := film.Record(strings.NewReader(text), &out)
	if err != nil || out.String() != text || len(f) != 3 || f[0].Text != "first" || f[1].Text != "" || f[2].Text != "last, without an end" {
		t.Errorf("Record() = %q, %v, and passes on %q", f, err, out.String())
	}
	if !slices.IsSortedFunc(f, func(a, b film.Line) int { return int(a.At - b.At) }) {
		t.Errorf("Record() = %v, want times in order", f)
	}
}

// A browser shows only a well-formed picture.
func TestThePictureIsWellFormed(t *testing.T) {
	f := film.Film{{0, "== <1> & more"}, {time.Hour, strings.Repeat("x", 300)}}
	picture := f.SVG()
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("SVG() = %s: %v", picture, err)
		}
	}
	if n := strings.Count(picture, "<text"); n != 4 {
		t.Errorf("SVG() has %d rows of text, want one and three, of a line of 300 characters:\n%s", n, picture)
	}
	// A pause of an hour is shortened.
	if !strings.Contains(picture, `dur="8.00s"`) || !strings.Contains(picture, `keyTimes="0.00000;0.25000"`) {
		t.Errorf("SVG() = %s, want two seconds of the wait, and six of the last screen", picture)
	}
}

// The transcript, the film and the picture of the demo are from one run.
func TestTheDemosPictureIsThatOfItsFilm(t *testing.T) {
	f, err := film.Read(strings.NewReader(read(t, castFile)))
	if err != nil || len(f) == 0 {
		t.Fatalf("Read(%s) = %d lines, %v, want a film", castFile, len(f), err)
	}
	picture := f.SVG()
	if *update {
		if err := os.WriteFile(pictureFile, []byte(picture), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, pictureFile) != picture {
		t.Errorf("%s is not what is drawn of %s: draw it anew with -update, or film it anew with: make transcript", pictureFile, castFile)
	}
	var text strings.Builder
	for _, line := range f[1:] { // the first line is empty
		text.WriteString(line.Text + "\n")
	}
	if read(t, textFile) != text.String() {
		t.Errorf("%s differs from %s: make both with: make transcript", textFile, castFile)
	}
}
