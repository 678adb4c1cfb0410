package kept_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/test/kept"
)

// recorder is a test that can fail without ending the surrounding test.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, _ ...any) { r.said += format }

func (r *recorder) Fatalf(format string, _ ...any) { r.said += format; panic(r) }

func attempt(f func(testing.TB)) (output string) {
	r := &recorder{}
	defer func() {
		if e := recover(); e != nil && e != r {
			panic(e)
		}
		output = r.said
	}()
	f(r)
	return r.said
}

func TestJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	kept.JSON(t, file, []int{1, 2}, true, "")
	if output := attempt(func(tb testing.TB) { kept.JSON(tb, file, []int{1, 2}, false, "") }); output != "" {
		t.Errorf("JSON() of what is kept failed: %s", output)
	}
	if output := attempt(func(tb testing.TB) { kept.JSON(tb, file, []int{2}, false, "") }); output == "" {
		t.Error("JSON() of something else did not fail")
	}
}

func TestBlock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	const begin, end = "<!-- made from the results of the conformance suite -->\n", "<!-- end -->\n"
	if err := os.WriteFile(file, []byte("# Head\n"+begin+"old\n"+end+"tail\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if output := attempt(func(tb testing.TB) { kept.Block(tb, file, "new\n", false, "") }); !strings.Contains(output, "write it with") {
		t.Errorf("Block() of something else says %q, want how it is written", output)
	}
	kept.Block(t, file, "new\n", true, "")
	kept.Block(t, file, "new\n", false, "")
	text, err := os.ReadFile(file)
	if want := "# Head\n" + begin + "new\n" + end + "tail\n"; err != nil || string(text) != want {
		t.Errorf("the file is %q, %v, want %q", text, err, want)
	}
	if output := attempt(func(tb testing.TB) { kept.Block(tb, os.DevNull, "", false, "") }); !strings.Contains(output, "no block") {
		t.Errorf("Block() of a file without one says %q, want so", output)
	}
}
