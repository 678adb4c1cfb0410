package state_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/internal/state"
)

// sample is the content of a state file with a tree of some depth, free pages,
// and both inline and full buckets.
func sample(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := state.Open(path, quiet())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		puts := map[string][]byte{}
		for i := range 120 {
			puts[fmt.Sprintf("key-%03d", i)] = []byte(strings.Repeat("v", 20+100*round))
		}
		if err := db.Bucket("large").Write(puts, []string{"key-007"}); err != nil {
			t.Fatal(err)
		}
		if err := db.Bucket("small").Write(map[string][]byte{"k": []byte("v")}, nil); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Verify(bytes.NewReader(content), int64(len(content))); err != nil {
		t.Fatalf("Verify() of a good file = %v, want no error", err)
	}
	return content
}

// survive opens, reads, writes, closes and opens again a file of that content.
// It tells whether the file was set aside.
func survive(t testing.TB, content []byte, what string) (setAside bool) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "state.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		db, err := state.Open(path, quiet())
		if err != nil {
			t.Fatalf("%s: Open() = %v, want no error", what, err)
		}
		setAside = setAside || db.Health().SetAside != ""
		if h := db.Health(); !h.Persisted {
			t.Fatalf("%s: Health() = %+v, want persisted", what, h)
		}
		for _, name := range []string{"large", "small"} {
			if _, err := db.Bucket(name).Load(); err != nil {
				t.Fatalf("%s: Load() = %v, want no error", what, err)
			}
			puts := map[string][]byte{"key-007": []byte("new"), "k": bytes.Repeat([]byte("n"), 5000)}
			if err := db.Bucket(name).Write(puts, []string{"key-050"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatalf("%s: Close() = %v, want no error", what, err)
		}
	}
	return setAside
}

func TestACutFileIsSurvived(t *testing.T) {
	content := sample(t)
	for size := 0; size < len(content); size += 509 {
		survive(t, content[:size], fmt.Sprintf("cut to %d of %d bytes", size, len(content)))
	}
	if !survive(t, content[:len(content)/2], "cut in half") {
		t.Error("a file cut in half was not set aside")
	}
	if survive(t, content, "whole") {
		t.Error("a whole file was set aside")
	}
}

func TestZeroedPagesAreSurvived(t *testing.T) {
	content := sample(t)
	const pageBytes = 4096
	for start := 0; start < len(content); start += pageBytes {
		for _, pages := range []int{1, 2, 1 << 20} {
			torn := bytes.Clone(content)
			clear(torn[start:min(len(torn), start+pages*pageBytes)])
			survive(t, torn, fmt.Sprintf("%d pages zeroed from byte %d on", pages, start))
		}
	}
	if !survive(t, make([]byte, len(content)), "all zero") {
		t.Error("a file of zeros was not set aside")
	}
}

func TestFlippedBytesAreSurvived(t *testing.T) {
	content := sample(t)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		flipped := bytes.Clone(content)
		for range 1 + i%5 {
			at := random.IntN(len(flipped))
			if i%2 == 0 { // where the structure is: the first bytes of a page
				at = at&^4095 + random.IntN(96)
			}
			flipped[at] ^= byte(1 + random.IntN(255))
		}
		survive(t, flipped, fmt.Sprintf("flip %d", i))
	}
}

// pages are the offsets of the pages of that type, live or not.
func pages(t *testing.T, content []byte, flags byte) []int {
	t.Helper()
	var found []int
	for start := 0; start+4096 <= len(content); start += 4096 {
		if content[start+8] == flags {
			found = append(found, start)
		}
	}
	if len(found) == 0 {
		t.Fatalf("the sample has no page of type %#x", flags)
	}
	return found
}

// What is wrong in a page shows only if the page is live, which one at least is.
func TestDamageThatBboltWouldNotSurviveIsSetAside(t *testing.T) {
	for name, tc := range map[string]struct {
		flags  byte
		damage func(page []byte)
	}{
		// bbolt descends until the memory is used up, which nothing recovers from
		"a page that is its own child":      {0x01, func(page []byte) { copy(page[16+8:16+16], page[:8]) }},
		"a page that is its own only child": {0x01, func(page []byte) { page[10] = 1; copy(page[16+8:16+16], page[:8]) }},
		// bbolt writes over it
		"a live page that is listed as free":  {0x10, func(page []byte) { page[16] = page[0] }},
		"a page that is listed as free twice": {0x10, func(page []byte) { copy(page[16:24], page[24:32]) }},
		"a meta page that is listed as free":  {0x10, func(page []byte) { page[16] = 1 }},
		// bbolt panics
		"a key beyond the page":   {0x02, func(page []byte) { page[16+8+2] = 0xff }},
		"a value beyond the page": {0x02, func(page []byte) { page[16+12+2] = 0xff }},
		"keys out of order":       {0x02, func(page []byte) { page[32+int(page[36])+int(page[37])<<8] = 'a' }},
		"a page of another name":  {0x02, func(page []byte) { page[0]++ }},
	} {
		t.Run(name, func(t *testing.T) {
			content, seen := sample(t), false
			for _, start := range pages(t, content, tc.flags) {
				damaged := bytes.Clone(content)
				tc.damage(damaged[start : start+4096])
				seen = survive(t, damaged, fmt.Sprintf("page at byte %d", start)) || seen
			}
			if !seen {
				t.Error("no file with this damage was set aside")
			}
		})
	}
}

// Reading a mapped file beyond its end is SIGBUS.
func TestAFileCutWhileOpenIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, sample(t), 0o600); err != nil {
		t.Fatal(err)
	}
	var log journal
	db, err := state.Open(path, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	write(t, db.Bucket("large"), map[string]string{"pending": "v"})
	want(t, db.Bucket("large"), map[string]string{"pending": "v"})
	if db.Health().SetAside == "" {
		t.Error("SetAside is empty, want the cut file")
	}
	if n := log.count("set aside"); n != 1 {
		t.Errorf("warnings = %d, want 1 in:\n%s", n, log.String())
	}
	closeDB(t, db)
	db = open(t, path)
	defer closeDB(t, db)
	want(t, db.Bucket("large"), map[string]string{"pending": "v"})
}

func TestFewDamagedFilesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	latest := ""
	for i := range 2 * state.KeptAside {
		if err := os.WriteFile(path, fmt.Appendf(nil, "%d is no database", i), 0o600); err != nil {
			t.Fatal(err)
		}
		db := open(t, path)
		latest = db.Health().SetAside
		closeDB(t, db)
	}
	aside, err := filepath.Glob(path + ".corrupt-*")
	if err != nil {
		t.Fatal(err)
	}
	if len(aside) != state.KeptAside {
		t.Errorf("files set aside = %v, want %d", aside, state.KeptAside)
	}
	content, err := os.ReadFile(latest)
	if err != nil || !strings.HasPrefix(string(content), fmt.Sprint(2*state.KeptAside-1)) {
		t.Errorf("latest file set aside holds %q (%v), want the latest damaged one", content, err)
	}
}

func FuzzVerify(f *testing.F) {
	content := sample(f)
	f.Add(0, []byte{0xff})
	f.Add(4096*3+8, []byte{1, 0, 1, 0})
	f.Add(4096*3+16, bytes.Repeat([]byte{0xff}, 16))
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		if at < 0 || at >= len(content) {
			return
		}
		patched := bytes.Clone(content)
		copy(patched[at:], patch)
		survive(t, patched, "patched")
	})
}
