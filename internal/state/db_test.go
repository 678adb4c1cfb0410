package state_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/state"
)

// journal is what a DB has logged.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

func (j *journal) count(message string) int { return strings.Count(j.String(), message) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func open(t *testing.T, path string) *state.DB {
	t.Helper()
	db, err := state.Open(path, quiet())
	if err != nil {
		t.Fatalf("Open(%s) = %v, want no error", path, err)
	}
	return db
}

func closeDB(t *testing.T, db *state.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatalf("Close() = %v, want no error", err)
	}
}

func write(t *testing.T, b *state.Bucket, puts map[string]string, deletes ...string) {
	t.Helper()
	values := map[string][]byte{}
	for k, v := range puts {
		values[k] = []byte(v)
	}
	if err := b.Write(values, deletes); err != nil {
		t.Fatalf("Write() = %v, want no error", err)
	}
}

func load(t *testing.T, b *state.Bucket) map[string]string {
	t.Helper()
	values, err := b.Load()
	if err != nil {
		t.Fatalf("Load() = %v, want no error", err)
	}
	got := map[string]string{}
	for key, value := range values {
		got[key] = string(value)
	}
	return got
}

func want(t *testing.T, b *state.Bucket, values map[string]string) {
	t.Helper()
	if got := load(t, b); !maps.Equal(got, values) {
		t.Errorf("Load() = %v, want %v", got, values)
	}
}

func TestValuesSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "state.db")
	db := open(t, path)
	a, b := db.Bucket("a"), db.Bucket("b")
	write(t, a, map[string]string{"one": "1", "two": "2", "three": ""})
	write(t, b, map[string]string{"one": "other"})
	write(t, a, map[string]string{"one": "1b"}, "two", "never there")
	want(t, a, map[string]string{"one": "1b", "three": ""})
	if err := db.Flush(); err != nil {
		t.Fatalf("Flush() = %v, want no error", err)
	}
	want(t, a, map[string]string{"one": "1b", "three": ""})
	write(t, a, map[string]string{"four": "4"}, "three")
	closeDB(t, db)
	if err := a.Write(map[string][]byte{"late": nil}, nil); err == nil {
		t.Error("Write() after Close() = nil, want an error")
	}
	if err := db.Flush(); err == nil {
		t.Error("Flush() after Close() = nil, want an error")
	}

	for name, wantMode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != wantMode {
			t.Errorf("mode of %s = %v, want %v", name, mode, wantMode)
		}
	}

	db = open(t, path)
	defer closeDB(t, db)
	want(t, db.Bucket("a"), map[string]string{"one": "1b", "four": "4"})
	want(t, db.Bucket("b"), map[string]string{"one": "other"})
	want(t, db.Bucket("c"), map[string]string{})
	if h := db.Health(); h != (state.Health{Persisted: true}) {
		t.Errorf("Health() = %+v, want persisted and nothing else", h)
	}
}

func TestASecondAgentIsLockedOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	first := open(t, path)
	write(t, first.Bucket("a"), map[string]string{"k": "v"})
	start := time.Now()
	_, err := state.Open(path, quiet())
	if !errors.Is(err, state.ErrLocked) {
		t.Fatalf("Open() of a file in use = %v, want ErrLocked", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("Open() of a file in use took %v, want about a second", took)
	}
	closeDB(t, first)
	second := open(t, path)
	defer closeDB(t, second)
	want(t, second.Bucket("a"), map[string]string{"k": "v"})
	if aside, _ := filepath.Glob(path + ".*"); len(aside) != 0 {
		t.Errorf("files set aside = %v, want none", aside)
	}
}

func TestWritesAreBehind(t *testing.T) {
	for name, tc := range map[string]struct {
		lazy  bool
		delay time.Duration
	}{
		"a change is written within seconds": {false, state.FlushDelay},
		"a heartbeat within half a minute":   {true, state.LazyFlushDelay},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			synctest.Test(t, func(t *testing.T) {
				db := open(t, path)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- db.Run(ctx) }()
				synctest.Wait()
				change := db.Bucket("a").Write
				if tc.lazy {
					change = db.Bucket("a").WriteLazily
				}
				for i := range 3 {
					if err := change(map[string][]byte{fmt.Sprint(i): []byte("v")}, nil); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(tc.delay - time.Millisecond)
				synctest.Wait()
				if n := db.PendingKeys(); n != 3 {
					t.Errorf("pending before the delay = %d, want 3", n)
				}
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				if n := db.PendingKeys(); n != 0 {
					t.Errorf("pending after the delay = %d, want 0", n)
				}
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("Run() = %v, want context.Canceled", err)
				}
				closeDB(t, db)
			})
		})
	}
}

func TestALazyChangeGoesWithTheNextOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		db := open(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- db.Run(ctx) }()
		if err := db.Bucket("a").WriteLazily(map[string][]byte{"beat": []byte("1")}, nil); err != nil {
			t.Fatal(err)
		}
		write(t, db.Bucket("b"), map[string]string{"k": "v"})
		time.Sleep(state.FlushDelay + time.Millisecond)
		synctest.Wait()
		if n := db.PendingKeys(); n != 0 {
			t.Errorf("pending = %d, want 0", n)
		}
		cancel()
		<-done
		closeDB(t, db)
	})
}

func TestAChangeThatCannotWaitTakesTheOthersAlong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		db := open(t, path)
		write(t, db.Bucket("a"), map[string]string{"k": "v"})
		if err := db.Bucket("b").WriteNow(map[string][]byte{"boot": []byte("two")}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- db.Run(ctx) }()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if n := db.PendingKeys(); n != 0 {
			t.Errorf("pending at once = %d, want 0", n)
		}
		cancel()
		<-done
		closeDB(t, db)
	})
}

// A folder where the file should be is what neither root nor anyone else can
// write to.
func TestGoesOnFromMemoryWhereNoFileCanBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var log journal
		db, err := state.Open(path, log.logger())
		if err != nil {
			t.Fatalf("Open() = %v, want no error", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- db.Run(ctx) }()
		b := db.Bucket("a")
		for i := range 1000 {
			write(t, b, map[string]string{fmt.Sprint(i): "v", "kept": fmt.Sprint(i)}, fmt.Sprint(i-1))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		want(t, b, map[string]string{"999": "v", "kept": "999"})
		if n := db.PendingKeys(); n > 2+2*int(state.RetryDelay/time.Second) {
			t.Errorf("pending after 1000 deletes = %d, want no growth", n)
		}
		h := db.Health()
		if h.Persisted || !strings.HasPrefix(h.Message, "not persisted: open "+path) {
			t.Errorf("Health() = %+v, want not persisted and why", h)
		}
		if n := log.count("not persisted"); n != 1 {
			t.Errorf("warnings = %d, want 1 in:\n%s", n, log.String())
		}

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(state.RetryDelay + time.Millisecond)
		synctest.Wait()
		if h := db.Health(); !h.Persisted || h.Message != "" {
			t.Errorf("Health() with the way clear = %+v, want persisted", h)
		}
		if n := log.count("written again"); n != 1 {
			t.Errorf("messages about recovery = %d, want 1 in:\n%s", n, log.String())
		}
		cancel()
		<-done
		closeDB(t, db)
	})
	db := open(t, path)
	defer closeDB(t, db)
	want(t, db.Bucket("a"), map[string]string{"999": "v", "kept": "999"})
}

func TestTheFileDoesNotGrow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := open(t, path)
	defer closeDB(t, db)
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	var early int64
	for i := range 200 {
		puts := map[string]string{}
		for k := range 50 {
			puts[fmt.Sprint("key", k)] = strings.Repeat(fmt.Sprint(i%10), 200+i%7)
		}
		write(t, db.Bucket("a"), puts, fmt.Sprint("gone", i-1))
		write(t, db.Bucket("a"), map[string]string{fmt.Sprint("gone", i): "v"})
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		if i == 20 {
			early = size()
		}
	}
	if late := size(); late > 2*early {
		t.Errorf("size after 200 writes = %d, after 20 = %d, want no growth", late, early)
	}
}

func TestAKeyThatCannotBeStoredHoldsUpNothing(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "state.db"))
	defer closeDB(t, db)
	b := db.Bucket("a")
	write(t, b, map[string]string{"good": "1", strings.Repeat("k", 32768): "2"})
	for _, key := range []string{"", strings.Repeat("k", 32769)} {
		if err := b.Write(map[string][]byte{key: nil, "beside it": nil}, nil); err == nil {
			t.Errorf("Write() of a key of %d bytes = nil, want an error", len(key))
		}
	}
	if err := db.Flush(); err != nil {
		t.Errorf("Flush() = %v, want no error", err)
	}
	if got := load(t, b); len(got) != 2 {
		t.Errorf("Load() = %d keys, want 2", len(got))
	}
}

func TestMemoryKeepsWhatIsAlive(t *testing.T) {
	db := state.NewMemory()
	b := db.Bucket("a")
	for i := range 100 {
		write(t, b, map[string]string{fmt.Sprint(i): "v"}, fmt.Sprint(i-1))
	}
	want(t, b, map[string]string{"99": "v"})
	if n := db.PendingKeys(); n != 1 {
		t.Errorf("keys held = %d, want 1", n)
	}
	if err := db.Err(); err != nil {
		t.Errorf("Err() = %v, want nil", err)
	}
	if h := db.Health(); h.Persisted || h.Message == "" {
		t.Errorf("Health() = %+v, want not persisted, with a message", h)
	}
	closeDB(t, db)
}

func TestMemoryIsNotWrittenAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where a loop without a pause lets no time pass, and hangs
		db := state.NewMemory()
		if err := db.Bucket("b").Write(map[string][]byte{"key": []byte("value")}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := db.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run() = %v, want %v", err, context.DeadlineExceeded)
		}
	})
}
