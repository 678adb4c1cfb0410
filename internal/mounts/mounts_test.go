package mounts

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLongLinesAreLeftOut(t *testing.T) {
	long := strings.Repeat("x", 100)
	for text, want := range map[string]string{
		"":                                    "",
		"a\nb\n":                              "a\nb\n",
		"a\nb":                                "a\nb",
		long + "\na\n":                        "a\n",
		"a\n" + long + "\n":                   "a\n",
		"a\n" + long:                          "a\n",
		long + "\n" + long + "\nb\n":          "b\n",
		strings.Repeat("x", 31) + "\n\n":      strings.Repeat("x", 31) + "\n\n",
		strings.Repeat("x", 32) + "\nlast\n":  "last\n",
		strings.Repeat("x", 63) + "\nlast\n":  "last\n",
		strings.Repeat("x", 64) + "\nlast\n":  "last\n",
		strings.Repeat("\n", 100) + long + "": strings.Repeat("\n", 100),
	} {
		for name, r := range map[string]io.Reader{"at once": strings.NewReader(text), "in bytes": iotest.OneByteReader(strings.NewReader(text))} {
			if got, err := io.ReadAll(lines(r, 32)); err != nil || string(got) != want {
				t.Errorf("lines(%q) %s = %q, %v, want %q", text, name, got, err, want)
			}
		}
	}
}
