package podlog_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler.io/hostler/runtime/cri/podlog"
)

// line is one as a runtime writes it.
func line(stream, tag, text string) string {
	return "2026-11-20T10:00:00.000000001Z " + stream + " " + tag + " " + text + "\n"
}

func write(t *testing.T, text string) (folder, path string) {
	t.Helper()
	folder = t.TempDir()
	path = filepath.Join(folder, "web_1", "main", "0.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return folder, path
}

func TestTailIsTheEndOfWhatWasWritten(t *testing.T) {
	var many strings.Builder
	for i := range 1000 {
		many.WriteString(line("stdout", "F", fmt.Sprintf("line %d", i)))
	}
	for name, c := range map[string]struct {
		in       string
		lines, n int
		want     string
	}{
		"nothing":                     {"", 10, 100, ""},
		"all of it":                   {line("stdout", "F", "one") + line("stderr", "F", "two  words"), 10, 100, "one\ntwo  words\n"},
		"an empty line":               {line("stdout", "F", ""), 10, 100, "\n"},
		"the last lines":              {many.String(), 2, 1 << 20, "line 998\nline 999\n"},
		"the last bytes":              {many.String(), 1000, 12, "98\nline 999\n"},
		"a line in parts":             {line("stdout", "P", "a ") + line("stdout", "P", "long ") + line("stdout", "F", "one"), 1, 100, "a long one\n"},
		"parts of two streams":        {line("stdout", "P", "a") + line("stderr", "P", "x") + line("stdout", "F", "b") + line("stderr", "F", "y"), 9, 100, "ab\nxy\n"},
		"tags of a later runtime":     {line("stdout", "P:new", "a") + line("stdout", "F:new", "b"), 9, 100, "ab\n"},
		"one that is being written":   {line("stdout", "F", "one") + "2026-11-20T10", 9, 100, "one\n"},
		"one of Windows, and a blank": {line("stdout", "F", "one\r"), 9, 100, "one\r\n"},
		"what is no such log":         {"hello\nworld\n", 9, 100, ""},
	} {
		folder, path := write(t, c.in)
		if got, err := podlog.Tail(folder, path, c.lines, c.n); err != nil || string(got) != c.want {
			t.Errorf("%s: Tail() = %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestALineThatIsCutIsLeftOut(t *testing.T) {
	const most = 64 << 10
	all := strings.Repeat(line("stdout", "F", "a b c d"), 10_000)
	for more := range 50 { // at different offsets
		end := strings.Repeat("x", more)
		folder, path := write(t, all+line("stdout", "F", end))
		got, err := podlog.Tail(folder, path, 100_000, most)
		if err != nil || strings.ReplaceAll(string(got), "a b c d\n", "") != end+"\n" {
			t.Fatalf("Tail() = %.40q, %v, want whole lines", got, err)
		}
	}
}

func TestOnlyRegularFilesInTheFolderAreRead(t *testing.T) {
	folder, path := write(t, line("stdout", "F", "mine"))
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte(line("stdout", "F", "secret")), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := filepath.Dir(path)
	for name, where := range map[string]string{"absolute.log": outside, "up.log": "../../../" + filepath.Base(filepath.Dir(outside)) + "/secret", "within.log": "0.log"} {
		if err := os.Symlink(where, filepath.Join(pod, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(folder, "away")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(pod, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, refused := range []string{
		outside, "", "relative.log", folder, folder + "/", folder + "-2/x.log", path + "/../../../../etc/passwd",
		filepath.Join(pod, "absolute.log"), filepath.Join(pod, "up.log"), filepath.Join(folder, "away", "secret"), filepath.Join(pod, "fifo"), pod,
		folder + "/web_1/main/../../../" + filepath.Base(filepath.Dir(outside)) + "/secret",
	} {
		if got, err := podlog.Tail(folder, refused, 10, 1000); err == nil {
			t.Errorf("Tail(%s) = %q, want it refused", refused, got)
		}
	}
	if _, err := podlog.Tail(folder, outside, 10, 1000); !errors.Is(err, podlog.ErrElsewhere) || !strings.Contains(err.Error(), folder) {
		t.Errorf("Tail() of a file elsewhere = %v, want that it is, and where it should be", err)
	}
	if got, err := podlog.Tail(folder, filepath.Join(pod, "within.log"), 10, 1000); err != nil || string(got) != "mine\n" {
		t.Errorf("Tail() by a link within the folder = %q, %v", got, err)
	}
	// The folder itself may be a link to another disk.
	elsewhere := filepath.Join(t.TempDir(), "pods")
	if err := os.Symlink(folder, elsewhere); err != nil {
		t.Fatal(err)
	}
	if got, err := podlog.Tail(elsewhere, filepath.Join(elsewhere, "web_1/main/0.log"), 10, 1000); err != nil || string(got) != "mine\n" {
		t.Errorf("Tail() in a folder that is a link = %q, %v", got, err)
	}
}

// A container may write anything.
func FuzzTail(f *testing.F) {
	f.Add([]byte(line("stdout", "F", "one")+line("stdout", "P", "two")), 3, 10)
	f.Add([]byte("\n\n    \n"), 1, 1)
	f.Fuzz(func(t *testing.T, raw []byte, lines, most int) {
		if lines < 1 || lines > 10000 || most < 1 || most > 1<<20 {
			return
		}
		folder, path := write(t, string(raw))
		got, err := podlog.Tail(folder, path, lines, most)
		if err != nil || len(got) > most || strings.Count(string(got), "\n") > lines {
			t.Errorf("Tail(%d, %d) of %q = %q, %v", lines, most, raw, got, err)
		}
	})
}
