package state_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/state"
)

func note(t *testing.T, n *state.Notes, puts map[string]string, deletes ...string) {
	t.Helper()
	values := map[string][]byte{}
	for k, v := range puts {
		values[k] = []byte(v)
	}
	if err := n.Write(values, deletes); err != nil {
		t.Fatalf("Write() = %v, want no error", err)
	}
}

func wantNotes(t *testing.T, when string, n *state.Notes, want map[string]string) {
	t.Helper()
	values, err := n.Load()
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

func TestNotesOutliveTheStateFile(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, path string){
		"damaged": func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("this was a state file once"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"of a newer version": func(t *testing.T, path string) {
			newer, err := state.OpenVersion(path, 2, nil, quiet())
			if err != nil {
				t.Fatal(err)
			}
			closeDB(t, newer)
		},
		"gone": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sub", "state.db")
			db := open(t, path)
			n := db.Notes("node")
			wantNotes(t, "at first", n, map[string]string{})
			note(t, n, map[string]string{"cordon": `{"by": "alice"}`, "left": "1"})
			write(t, db.Bucket("a"), map[string]string{"k": "v"})
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
			note(t, n, map[string]string{"kubelet": `"node-a"`}, "left", "never there")
			closeDB(t, db)
			if err := n.Write(map[string][]byte{"late": []byte("1")}, nil); err == nil {
				t.Error("Write() after Close() = nil, want an error")
			}
			lose(t, path)

			db = open(t, path)
			defer closeDB(t, db)
			want(t, db.Bucket("a"), map[string]string{})
			wantNotes(t, "without the state file", db.Notes("node"), map[string]string{"cordon": `{"by":"alice"}`, "kubelet": `"node-a"`})
			info, err := os.Stat(filepath.Join(filepath.Dir(path), "node.json"))
			if err != nil || info.Mode() != 0o600 {
				t.Errorf("Stat() of the notes = %v, %v, want a file for root alone", info, err)
			}
		})
	}
}

func TestNotesAreWrittenWithinSeconds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	written := func() bool {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "node.json"))
		return err == nil && strings.Contains(string(text), `"cordon": 1`)
	}
	synctest.Test(t, func(t *testing.T) {
		db := open(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- db.Run(ctx) }()
		synctest.Wait()
		note(t, db.Notes("node"), map[string]string{"cordon": "1"})
		time.Sleep(state.FlushDelay - time.Millisecond)
		synctest.Wait()
		if written() {
			t.Error("the notes are in the file before the delay")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if !written() {
			t.Error("the notes are not in the file after the delay")
		}
		cancel()
		<-done
		closeDB(t, db)
	})
}

func TestNotesThatMakeNoSenseAreSetAside(t *testing.T) {
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
			path := filepath.Join(t.TempDir(), "state.db")
			file := filepath.Join(filepath.Dir(path), "node.json")
			err := os.WriteFile(file, []byte(content), 0o600)
			if name == "a folder" {
				_ = os.Remove(file)
				err = os.Mkdir(file, 0o700)
			}
			if err != nil {
				t.Fatal(err)
			}
			var log journal
			db, err := state.Open(path, log.logger())
			if err != nil {
				t.Fatal(err)
			}
			n := db.Notes("node")
			wantNotes(t, "after the loss", n, map[string]string{})
			if aside := db.Health().SetAside; !strings.HasPrefix(aside, file+".corrupt-") || log.count("set aside") != 1 {
				t.Errorf("SetAside = %q, want %s.corrupt-… and one warning:\n%s", aside, file, log.String())
			}
			note(t, n, map[string]string{"cordon": "1"})
			closeDB(t, db)
			db = open(t, path)
			defer closeDB(t, db)
			wantNotes(t, "written anew", db.Notes("node"), map[string]string{"cordon": "1"})
		})
	}
}

// A loop of links is what root cannot read either.
func TestNotesThatCannotBeReadAreNotWrittenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	file := filepath.Join(filepath.Dir(path), "node.json")
	if err := os.Symlink("node.json", file); err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	n := db.Notes("node")
	if err := db.Flush(); err != nil || db.Health().SetAside != "" {
		t.Errorf("Flush() of nothing = %v, moved to %q, want the file left where it is", err, db.Health().SetAside)
	}
	note(t, n, map[string]string{"cordon": "1"})
	closeDB(t, db)
	aside := db.Health().SetAside
	if to, err := os.Readlink(aside); err != nil || to != "node.json" || !strings.HasPrefix(aside, file+".unreadable-") {
		t.Errorf("%q is a link to %q, %v, want what could not be read", aside, to, err)
	}
	db = open(t, path)
	defer closeDB(t, db)
	wantNotes(t, "written", db.Notes("node"), map[string]string{"cordon": "1"})
}

func TestNotesOfALaterVersionStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	file := filepath.Join(filepath.Dir(path), "node.json")
	if err := os.WriteFile(file, []byte(`{"later": {"b": [1, 2], "a": null}, "cordon": 1, "taken out": null}`), 0o600); err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	n := db.Notes("node")
	note(t, n, map[string]string{"left": `{"by":"bob"}`}, "cordon")
	closeDB(t, db)
	db = open(t, path)
	defer closeDB(t, db)
	wantNotes(t, "of a later version", db.Notes("node"), map[string]string{"later": `{"b":[1,2],"a":null}`, "left": `{"by":"bob"}`})
}

func TestAValueThatIsNoJSONIsNotNoted(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "state.db"))
	defer closeDB(t, db)
	n := db.Notes("node")
	for _, value := range []string{"", "node-a", "null", " null\n", "{"} {
		if err := n.Write(map[string][]byte{"a": []byte(value), "beside it": []byte("1")}, nil); err == nil {
			t.Errorf("Write() of %q = nil, want an error", value)
		}
	}
	wantNotes(t, "after refusals", n, map[string]string{})
}

func TestNotesThatCannotBeWrittenHoldUpNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	block := filepath.Join(filepath.Dir(path), "node.json.new")
	if err := os.MkdirAll(filepath.Join(block, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	n := db.Notes("node")
	note(t, n, map[string]string{"cordon": "1"})
	write(t, db.Bucket("a"), map[string]string{"k": "v"})
	if err := db.Flush(); err == nil || db.PendingKeys() != 0 {
		t.Errorf("Flush() = %v with %d keys pending, want an error, and the state file written", err, db.PendingKeys())
	}
	if h := db.Health(); h.Persisted || !strings.Contains(h.Message, "node.json") {
		t.Errorf("Health() = %+v, want that the notes are not persisted", h)
	}
	if err := os.RemoveAll(block); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(); err != nil || !db.Health().Persisted {
		t.Errorf("Flush() with the way clear = %v, Health() = %+v, want all persisted", err, db.Health())
	}
	closeDB(t, db)
	db = open(t, path)
	defer closeDB(t, db)
	wantNotes(t, "with the way clear", db.Notes("node"), map[string]string{"cordon": "1"})
}

func TestNotesTakeOverWhatAnEarlierVersionHasKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := open(t, path)
	write(t, db.Bucket("agent"), map[string]string{"cordon": "1", "left": "2", "other": "3"})
	closeDB(t, db)
	start := func() (*state.DB, *state.Notes) {
		db := open(t, path)
		n := db.Notes("node")
		if err := n.Inherit(db.Bucket("agent"), "cordon", "left"); err != nil {
			t.Fatalf("Inherit() = %v, want no error", err)
		}
		return db, n
	}
	db, n := start()
	wantNotes(t, "at the first start", n, map[string]string{"cordon": "1", "left": "2"})
	want(t, db.Bucket("agent"), map[string]string{"cordon": "1", "left": "2", "other": "3"}) // a power cut now loses none
	note(t, n, map[string]string{"cordon": "4"}, "left")
	closeDB(t, db)
	db, n = start()
	wantNotes(t, "at the second start", n, map[string]string{"cordon": "4"})
	want(t, db.Bucket("agent"), map[string]string{"other": "3"})
	closeDB(t, db)
}

func TestNotesInMemoryNeedNoFile(t *testing.T) {
	db := state.NewMemory()
	n := db.Notes("node")
	note(t, n, map[string]string{"cordon": "1"})
	if err := db.Flush(); err != nil {
		t.Errorf("Flush() = %v, want no error", err)
	}
	wantNotes(t, "in memory", n, map[string]string{"cordon": "1"})
	closeDB(t, db)
}
