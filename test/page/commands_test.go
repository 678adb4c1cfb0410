package page_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hostler.io/hostler/test/page"
)

const shown = "Type `hostler status  # now`, or `sudo hostler doctor`:\n\n" +
	"```sh\n# all of it\nsudo hostler ps | grep -v '#'   # pods\n\nopenssl req \\\n  -nodes # a key\n```\n\n" +
	"```sh\n#!/bin/sh\n# a check\nexit 1\n```\n\n" +
	"```console\n# hostler drain -- $(x)\nit drains\n$ hostler uncordon\n```\n\n" +
	"```text\n$ hostler images\nnone\n```\n\n```yaml\nhostler: x\n```\n"

func TestWhatAPageHasPeopleType(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "x.md"), []byte(shown), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range page.Commands(t, root, "x.md") {
		if c.Page != "x.md" {
			t.Errorf("Commands() = one of %s, want of x.md", c.Page)
		}
		got = append(got, c.Line)
	}
	if want := []string{"hostler ps | grep -v '#'", "openssl req   -nodes", "#!/bin/sh\n# a check\nexit 1\n", "hostler drain -- $(x)", "hostler uncordon"}; !slices.Equal(got, want) {
		t.Errorf("Commands() = %q, want %q", got, want)
	}
	if got, want := page.Spans(t, root, "x.md"), []string{"hostler status", "hostler doctor", "hostler images"}; !slices.Equal(got, want) {
		t.Errorf("Spans() = %q, want %q", got, want)
	}
}

// complaints is a test that records failures.
type complaints struct {
	testing.TB
	reported int
}

func (c *complaints) Helper()               {}
func (c *complaints) Errorf(string, ...any) { c.reported++ }

func TestABlockSaysWhatItIsIn(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "x.md"), []byte("```\nhostler drain\n```\n```text\nx\n```\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := complaints{TB: t}
	if got := page.Commands(&c, root, "x.md"); c.reported != 1 || len(got) > 0 {
		t.Errorf("Commands() = %q with %d faults, want one, of the block that says nothing", got, c.reported)
	}
}
