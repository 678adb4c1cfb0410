package statefile_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/statefile"
)

func note(t *testing.T, v *statefile.Values, puts map[string]string, deletes ...string) {
	t.Helper()
	values := map[string][]byte{}
	for key, value := range puts {
		values[key] = []byte(value)
	}
	if err := v.Write(values, deletes); err != nil {
		t.Fatalf("Write() = %v, want no error", err)
	}
}

func wantValues(t *testing.T, when string, v *statefile.Values, want map[string]string) {
	t.Helper()
	values, err := v.Load()
	if err != nil {
		t.Fatalf("Load() = %v, want no error", err)
	}
	got := map[string]string{}
	for key, value := range values {
		got[key] = string(value)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s Load() = %v, want %v", when, got, want)
	}
}

func TestNotesOutliveTheStateFiles(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, file string) error{
		"damaged":            func(t *testing.T, file string) error { return os.WriteFile(file, []byte("this was one once"), 0o600) },
		"of a newer version": func(t *testing.T, file string) error { return os.WriteFile(file, sealed(2, `{"k": 1}`), 0o600) },
		"gone":               func(t *testing.T, file string) error { return os.Remove(file) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sub")
			folder := open(t, path)
			notes, values := folder.Notes("node"), folder.Values("agent")
			wantValues(t, "at first", notes, map[string]string{})
			note(t, notes, map[string]string{"cordon": `{"by": "alice"}`, "left": "1"})
			note(t, values, map[string]string{"k": `"v"`})
			if err := folder.Flush(); err != nil {
				t.Fatal(err)
			}
			note(t, notes, map[string]string{"kubelet": `"node-a"`}, "left", "never there")
			closed(t, folder)
			if err := lose(t, filepath.Join(path, "agent.state")); err != nil {
				t.Fatal(err)
			}
			folder = open(t, path)
			defer closed(t, folder)
			wantValues(t, "after the loss", folder.Values("agent"), map[string]string{})
			wantValues(t, "without the state file", folder.Notes("node"), map[string]string{"cordon": `{"by":"alice"}`, "kubelet": `"node-a"`})
			info, err := os.Stat(filepath.Join(path, "node.json"))
			if err != nil || info.Mode() != 0o600 {
				t.Errorf("Stat() of the notes = %v, %v, want a file for root alone", info, err)
			}
		})
	}
}

func TestValuesSurviveARestart(t *testing.T) {
	path := t.TempDir()
	folder := open(t, path)
	v := folder.Values("agent")
	note(t, v, map[string]string{"one": "1", "two": "2"})
	note(t, v, map[string]string{"one": "3"}, "two")
	wantValues(t, "before it is written", v, map[string]string{"one": "3"})
	closed(t, folder)
	folder = open(t, path)
	defer closed(t, folder)
	wantValues(t, "after a restart", folder.Values("agent"), map[string]string{"one": "3"})
}

func TestNotesAreWrittenWithinSecondsAndOnlyIfTheyChange(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, "node.json")
	written := func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), `"cordon": 1`)
	}
	synctest.Test(t, func(t *testing.T) {
		folder := open(t, path)
		stop := run(t, folder)
		notes := folder.Notes("node")
		note(t, notes, map[string]string{"cordon": "1"})
		time.Sleep(statefile.SaveDelay - time.Millisecond)
		synctest.Wait()
		if written() {
			t.Error("the notes are in the file before the delay")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if !written() {
			t.Error("the notes are not in the file after the delay")
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		note(t, notes, map[string]string{"cordon": "1"}, "never there")
		time.Sleep(time.Hour)
		synctest.Wait()
		if written() {
			t.Error("notes that have not changed were written again")
		}
		if err := notes.WriteNow(map[string][]byte{"boot": []byte("2")}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !written() {
			t.Error("what cannot wait is not in the file at once")
		}
		stop()
		closed(t, folder)
	})
}

func TestInvalidNotesAreSetAside(t *testing.T) {
	for name, content := range map[string]string{
		"empty":     "",
		"cut":       `{"cordon": {"by": "al`,
		"no object": "[1]",
		"null":      "null",
		"zeros":     strings.Repeat("\x00", 4096),
		"endless":   `{"a": "` + strings.Repeat("x", 2<<20) + `"}`,
		"a folder":  "",
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			file := filepath.Join(path, "node.json")
			err := os.WriteFile(file, []byte(content), 0o600)
			if name == "a folder" {
				_ = os.Remove(file)
				err = os.Mkdir(file, 0o700)
			}
			if err != nil {
				t.Fatal(err)
			}
			var log journal
			folder, err := statefile.Open(path, log.logger())
			if err != nil {
				t.Fatal(err)
			}
			n := folder.Notes("node")
			wantValues(t, "after the loss", n, map[string]string{})
			if aside := folder.Health().SetAside; !strings.HasPrefix(aside, file+".corrupt-") || log.count("moved unusable state file aside") != 1 {
				t.Errorf("SetAside = %q, want %s.corrupt-… and one warning:\n%s", aside, file, log.String())
			}
			note(t, n, map[string]string{"cordon": "1"})
			closed(t, folder)
			folder = open(t, path)
			defer closed(t, folder)
			wantValues(t, "written again", folder.Notes("node"), map[string]string{"cordon": "1"})
		})
	}
}

// A host may have too many open files just when the agent starts. A person then cordons it.
func TestNotesThatCouldNotBeReadAreNotReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		stored string // what can be read later; empty for nothing
		want   map[string]string
		aside  bool
	}{
		"readable later": {`{"cordon": 1, "left": 2, "undone": 3}`, map[string]string{"cordon": "4", "left": "2"}, false},
		"damaged":        {`{"cordon`, map[string]string{"cordon": "4"}, true},
		"removed":        {"", map[string]string{"cordon": "4"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := t.TempDir()
				file := filepath.Join(path, "node.json")
				if err := os.Symlink("node.json", file); err != nil { // even root cannot read a loop of links
					t.Fatal(err)
				}
				folder := open(t, path)
				n := folder.Notes("node")
				if !n.Unread() {
					t.Error("Unread() = false of what cannot be read")
				}
				if err := n.Write(map[string][]byte{"cordon": []byte("4")}, []string{"undone"}); err != nil {
					t.Fatal(err)
				}
				if err := folder.Flush(); err == nil || folder.Health().SetAside != "" || folder.Health().Persisted {
					t.Errorf("Flush() = %v, SetAside = %q, want an error, and the file left where it is", err, folder.Health().SetAside)
				}
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
				if c.stored != "" {
					if err := os.WriteFile(file, []byte(c.stored), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				closed(t, folder)
				if aside := folder.Health().SetAside; (aside != "") != c.aside || !n.Unread() {
					t.Errorf("after a write, SetAside = %q and Unread() = %v, want it set aside: %v, and true", aside, n.Unread(), c.aside)
				}
				folder = open(t, path)
				defer closed(t, folder)
				wantValues(t, "written", folder.Notes("node"), c.want)
			})
		})
	}
}

// While a write begins, the owner may already request the next one.
func TestAChangeDuringAWriteReplacesNoNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir()
		file := filepath.Join(path, "node.json")
		if err := os.Symlink("node.json", file); err != nil { // even root cannot read a loop of links
			t.Fatal(err)
		}
		folder := open(t, path)
		n := folder.Notes("node")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(`{"left": 2}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := n.Write(map[string][]byte{"cordon": []byte("4")}, nil); err != nil {
			t.Fatal(err)
		}
		if err := n.WriteFile(); err != nil {
			t.Fatal(err)
		}
		closed(t, folder)
		folder = open(t, path)
		defer closed(t, folder)
		wantValues(t, "written", folder.Notes("node"), map[string]string{"cordon": "4", "left": "2"})
	})
}

func TestNotesOfALaterVersionStay(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "node.json"), []byte(`{"later": {"b": [1, 2], "a": null}, "cordon": 1, "taken out": null}`), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := open(t, path)
	n := folder.Notes("node")
	note(t, n, map[string]string{"left": `{"by":"bob"}`}, "cordon")
	closed(t, folder)
	folder = open(t, path)
	defer closed(t, folder)
	wantValues(t, "of a later version", folder.Notes("node"), map[string]string{"later": `{"b":[1,2],"a":null}`, "left": `{"by":"bob"}`})
}

func TestAValueThatIsNoJSONIsRefused(t *testing.T) {
	folder := open(t, t.TempDir())
	defer closed(t, folder)
	n := folder.Notes("node")
	for _, value := range []string{"", "node-a", "null", " null\n", "{"} {
		if err := n.Write(map[string][]byte{"a": []byte(value), "beside it": []byte("1")}, nil); err == nil {
			t.Errorf("Write() of %q = nil, want an error", value)
		}
	}
	wantValues(t, "after refusals", n, map[string]string{})
}
