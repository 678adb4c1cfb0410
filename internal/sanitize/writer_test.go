package sanitize_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"hostler.io/hostler/internal/sanitize"
)

func TestWriter(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\n":                 "a\tb\n",
		"\x1b[31;1mred\x1b[0m\n": "\x1b[31;1mred\x1b[0m\n",
		"\x1b[2Jgone\n":          "?[2Jgone\n",
		"\x1b]0;title\x07\n":     "?]0;title?\n",
		"back\r\n":               "back?\n",
		"\u202eturned\u009b\n":   "?turned?\n",
		"\xff\n":                 "?\n",
		"ä€😀\n":                  "ä€😀\n",
	} {
		var out bytes.Buffer
		n, err := sanitize.Writer{W: &out, Allow: []string{"\x1b[31;1m", "\x1b[0m"}}.Write([]byte(in))
		if n != len(in) || err != nil || out.String() != want {
			t.Errorf("Write(%q) = %d, %v, and wrote %q, want %q", in, n, err, out.String(), want)
		}
	}
}

func TestHandler(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(sanitize.Handler{Handler: slog.NewJSONHandler(&out, nil)}).With("pod", "web\u202e")
	log.WithGroup("g").Info("stopped\u009b", "error", errors.New("no\u2028thing"), "n", 5, "list", []string{"a\u202e"}, slog.Group("in", "label", strings.Repeat("x", 1<<20)))
	text := out.String()
	for _, want := range []string{`"pod":"web?"`, `"msg":"stopped?"`, `"error":"no thing"`, `"n":5`, `"list":["a?"]`, fmt.Sprintf("(cut, %d bytes)", 1<<20)} {
		if !strings.Contains(text, want) {
			t.Errorf("log = %.500s, want %s", text, want)
		}
	}
	if len(text) > 8<<10 {
		t.Errorf("a record has %d bytes, want less", len(text))
	}
}
