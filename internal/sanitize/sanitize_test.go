package sanitize_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/internal/sanitize"
)

func TestALineIsHarmless(t *testing.T) {
	for in, want := range map[string]string{
		"all well\n":                             "all well",
		"  tabs\tand \x00nulls\r\n":              "tabs and nulls",
		"\x1b[31mred\x1b[0m, \x1b]0;title\x07ok": "red, ok",
		"turned \u202eround\u202c":               "turned round",
		"bad \xff\xfe bytes":                     "bad \uFFFD bytes",
		"":                                       "",
		"\x1b":                                   "",
		"Größe, 日本":                              "Größe, 日本",
	} {
		if got := sanitize.Line(in, 512); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
	if got := sanitize.Line(strings.Repeat("ö", 4000), 512); len(got) > 512 || !strings.HasSuffix(got, "ö…") {
		t.Errorf("Line() of a long line = %d bytes that end %q, want at most %d with an ellipsis", len(got), got[len(got)-6:], 512)
	}
}
