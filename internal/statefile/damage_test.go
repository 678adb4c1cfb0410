package statefile_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/statefile"
)

var sampleValues = map[string]string{"a": strings.Repeat("v", 50), "b": "\x00ü\n"}

// sample returns a state file that contains sampleValues.
func sample(t testing.TB) []byte {
	t.Helper()
	path := t.TempDir()
	folder := open(t, path)
	save(folder.File("a"), sampleValues)
	closed(t, folder)
	content, err := os.ReadFile(filepath.Join(path, "a.state"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// survive opens a file with that content, reads, writes, closes and opens it again. It must read
// the whole sample, or the file must be renamed.
func survive(t testing.TB, content []byte, what string) (setAside bool) {
	t.Helper()
	path, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(path)
	if err := os.WriteFile(filepath.Join(path, "a.state"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	folder := open(t, path)
	var got map[string]string
	folder.File("a").Load(&got)
	setAside = folder.Health().SetAside != ""
	if setAside && len(got) > 0 || !setAside && !maps.Equal(got, sampleValues) {
		t.Errorf("%s: Load() = %v, set aside: %v, want it read as it was or set aside", what, got, setAside)
	}
	if kept, err := os.ReadFile(folder.Health().SetAside); setAside && (err != nil || !bytes.Equal(kept, content)) {
		t.Errorf("%s: set aside is %q, %v, want what was damaged", what, kept, err)
	}
	if h := folder.Health(); !h.Persisted {
		t.Errorf("%s: Health() = %+v, want persisted", what, h)
	}
	save(folder.File("a"), map[string]string{"new": "1"})
	closed(t, folder)
	folder = open(t, path)
	defer closed(t, folder)
	want(t, what+": written again,", folder.File("a"), map[string]string{"new": "1"})
	return setAside
}

func TestAFileThatIsCutAnywhereIsSetAside(t *testing.T) {
	content := sample(t)
	for size := range content {
		if !survive(t, content[:size], fmt.Sprintf("cut to %d of %d bytes", size, len(content))) {
			t.Errorf("a file cut to %d of %d bytes was not set aside", size, len(content))
		}
	}
	if survive(t, content, "whole") {
		t.Error("a whole file was set aside")
	}
	if !survive(t, append(bytes.Clone(content), content...), "twice") {
		t.Error("a file that is there twice was not set aside")
	}
}

// A flipped byte may leave an equivalent header, such as a key in uppercase.
func TestAByteThatIsFlippedAnywhereIsNoticed(t *testing.T) {
	content := sample(t)
	for i := range content {
		for _, flip := range []byte{0x01, 0x20, 0xff} {
			flipped := bytes.Clone(content)
			flipped[i] ^= flip
			survive(t, flipped, fmt.Sprintf("byte %d flipped by %#x", i, flip))
		}
	}
}

func FuzzLoad(f *testing.F) {
	content := sample(f)
	f.Add(0, []byte{0xff})
	f.Add(10, []byte("99999999999999999999"))
	f.Add(len(content)-3, []byte("\n"))
	f.Add(0, bytes.Repeat([]byte("["), 20000))
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		if at < 0 || at > len(content) || bytes.HasPrefix(content[at:], patch) {
			return
		}
		patched := append(bytes.Clone(content[:at]), patch...)
		patched = append(patched, content[min(len(content), at+len(patch)):]...)
		survive(t, patched, "patched")
	})
}

// sealed returns a file of that version with a correct checksum.
func sealed(version int, value string) []byte {
	value += "\n"
	return fmt.Appendf(nil, "{\"version\":%d,\"sha256\":\"%x\"}\n%s", version, sha256.Sum256([]byte(value)), value)
}

func TestAnInvalidFileIsSetAside(t *testing.T) {
	for name, content := range map[string][]byte{
		"zeros":                   make([]byte, 4096),
		"text":                    []byte("this was a state file once\n"),
		"plain JSON":              []byte("{\"a\":\"b\"}\n"),
		"a value of another type": sealed(1, "[1, 2]"),
		"a value halfway so":      sealed(1, `{"a": "b", "c": 1}`),
		"no JSON":                 sealed(1, "{"),
		"version 0":               sealed(0, `{"a":"b"}`),
		"more than is ever read":  append(sealed(1, `{}`), make([]byte, statefile.MaxBytes)...),
	} {
		if !survive(t, content, name) {
			t.Errorf("%s: the file was not set aside", name)
		}
	}
}

func TestWhatIsNotAFileIsSetAside(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "a.state"), 0o700); err != nil {
		t.Fatal(err)
	}
	folder := open(t, path)
	want(t, "of a folder", folder.File("a"), nil)
	save(folder.File("a"), sampleValues)
	closed(t, folder)
	if aside := folder.Health().SetAside; !strings.HasPrefix(aside, filepath.Join(path, "a.state.corrupt-")) {
		t.Errorf("SetAside = %q, want the folder", aside)
	}
}

func TestAFileOfANewerVersionIsSetAside(t *testing.T) {
	path := t.TempDir()
	newer := sealed(2, `{"a": "of the future"}`)
	if err := os.WriteFile(filepath.Join(path, "a.state"), newer, 0o600); err != nil {
		t.Fatal(err)
	}
	var log journal
	folder, err := statefile.Open(path, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, folder)
	want(t, "of a newer version", folder.File("a"), nil)
	aside := folder.Health().SetAside
	if text, err := os.ReadFile(aside); err != nil || !bytes.Equal(text, newer) || !strings.HasPrefix(aside, filepath.Join(path, "a.state.v2-")) {
		t.Errorf("SetAside = %q with %q, %v, want a.state.v2-… as it was", aside, text, err)
	}
	if log.count("newer hostler") != 1 {
		t.Errorf("log = %s, want one warning that names the newer version", log.String())
	}
}

func TestFewDamagedFilesAreKept(t *testing.T) {
	path, latest := t.TempDir(), ""
	for i := range 2 * statefile.KeptAside {
		if err := os.WriteFile(filepath.Join(path, "a.state"), fmt.Appendf(nil, "%d is no state", i), 0o600); err != nil {
			t.Fatal(err)
		}
		folder := open(t, path)
		want(t, "of a damaged file", folder.File("a"), nil)
		latest = folder.Health().SetAside
		closed(t, folder)
	}
	aside, err := filepath.Glob(filepath.Join(path, "a.state.corrupt-*"))
	if err != nil || len(aside) != statefile.KeptAside {
		t.Errorf("files set aside = %v, %v, want %d", aside, err, statefile.KeptAside)
	}
	content, err := os.ReadFile(latest)
	if err != nil || !strings.HasPrefix(string(content), fmt.Sprint(2*statefile.KeptAside-1)) {
		t.Errorf("latest file set aside holds %q (%v), want the latest damaged one", content, err)
	}
}

func TestACrashBetweenWriteAndRenameLosesNothing(t *testing.T) {
	path := t.TempDir()
	for _, left := range [][]byte{nil, []byte("torn"), sealed(1, `{"a": "never renamed"}`)} {
		for name, content := range map[string][]byte{"a.state": sample(t), "a.state.new": left} {
			if err := os.WriteFile(filepath.Join(path, name), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		folder := open(t, path)
		want(t, "after the crash", folder.File("a"), sampleValues)
		if info, err := os.Stat(filepath.Join(path, "a.state")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file is %v, %v, want it root's alone", info.Mode(), err)
		}
		save(folder.File("a"), map[string]string{"new": "1"})
		closed(t, folder)
		if left, err := filepath.Glob(filepath.Join(path, "*.new")); err != nil || len(left) > 0 {
			t.Errorf("left behind = %v, %v, want nothing", left, err)
		}
	}
}

// Even root cannot read a loop of links.
func TestAFileThatCannotBeReadIsNotWrittenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir()
		file := filepath.Join(path, "a.state")
		if err := os.Symlink("a.state", file); err != nil {
			t.Fatal(err)
		}
		var log journal
		folder, err := statefile.Open(path, log.logger())
		if err != nil {
			t.Fatal(err)
		}
		want(t, "of what cannot be read", folder.File("a"), nil)
		if err := folder.Flush(); err != nil || folder.Health().SetAside != "" || log.count("cannot read state file") != 1 {
			t.Errorf("Flush() of nothing = %v, moved to %q, want the file left where it is, and a warning:\n%s", err, folder.Health().SetAside, log.String())
		}
		if !folder.File("a").Unread() {
			t.Error("Unread() = false of what cannot be read")
		}
		save(folder.File("a"), sampleValues)
		closed(t, folder)
		aside := folder.Health().SetAside
		if to, err := os.Readlink(aside); err != nil || to != "a.state" || !strings.HasPrefix(aside, file+".unreadable-") {
			t.Errorf("%q is a link to %q, %v, want what could not be read", aside, to, err)
		}
		if folder.File("a").Unread() {
			t.Error("Unread() = true of what was written since")
		}
		folder = open(t, path)
		defer closed(t, folder)
		want(t, "written", folder.File("a"), sampleValues)
	})
}

// A host may have too many open files, or an unstable disk, just when the agent starts.
func TestAFileThatCannotBeReadIsTriedAgain(t *testing.T) {
	for _, after := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			path, content := t.TempDir(), sample(t)
			file := filepath.Join(path, "a.state")
			intact := filepath.Join(t.TempDir(), "a.state")
			if err := errors.Join(os.Symlink("a.state", file), os.WriteFile(intact, content, 0o600)); err != nil {
				t.Fatal(err)
			}
			// A read at the same instant gets the link or the whole file.
			time.AfterFunc(after, func() { _ = os.Rename(intact, file) })
			folder := open(t, path)
			defer closed(t, folder)
			stored := folder.File("a")
			if after > 3*time.Second {
				want(t, "of what cannot be read", stored, nil)
				time.Sleep(after)
			}
			want(t, "of what can be read again", stored, sampleValues)
			if stored.Unread() {
				t.Error("Unread() = true of what was read")
			}
		})
	}
}

func TestAFileThatTurnsOutToBeDamagedIsNotUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir()
		file := filepath.Join(path, "a.state")
		if err := os.Symlink("a.state", file); err != nil {
			t.Fatal(err)
		}
		folder := open(t, path)
		defer closed(t, folder)
		stored := folder.File("a")
		want(t, "of what cannot be read", stored, nil)
		if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte("damaged"), 0o600)); err != nil {
			t.Fatal(err)
		}
		want(t, "of a damaged file", stored, nil)
		if stored.Unread() {
			t.Error("Unread() = true of a file that was moved aside")
		}
	})
}
