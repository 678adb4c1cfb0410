package statefile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/statefile"
)

// journal collects what a Folder logs.
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

func open(t testing.TB, path string) *statefile.Folder {
	t.Helper()
	folder, err := statefile.Open(path, quiet())
	if err != nil {
		t.Fatalf("Open(%s) = %v, want no error", path, err)
	}
	return folder
}

func closed(t testing.TB, folder *statefile.Folder) {
	t.Helper()
	if err := folder.Close(); err != nil {
		t.Fatalf("Close() = %v, want no error", err)
	}
}

// owner has a value, and counts the snapshots of it.
type owner struct {
	mu      sync.Mutex
	value   map[string]string
	written int
}

func (o *owner) snapshot() any {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written++
	return maps.Clone(o.value)
}

func (o *owner) set(key, value string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.value == nil {
		o.value = map[string]string{}
	}
	o.value[key] = value
}

func (o *owner) writes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.written
}

// save saves values.
func save(file *statefile.File, values map[string]string) {
	file.Save((&owner{value: values}).snapshot)
}

func want(t testing.TB, when string, file *statefile.File, values map[string]string) {
	t.Helper()
	var got map[string]string
	file.Load(&got)
	if !maps.Equal(got, values) {
		t.Errorf("%s Load() = %v, want %v", when, got, values)
	}
}

// run runs the folder until the end of the test's bubble.
func run(t *testing.T, folder *statefile.Folder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- folder.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want context.Canceled", err)
		}
	}
}

func TestStateSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "state")
	folder := open(t, path)
	save(folder.File("a"), map[string]string{"one": "1"})
	save(folder.File("b"), map[string]string{"one": "other"})
	want(t, "before it is written", folder.File("a"), map[string]string{"one": "1"})
	if err := folder.Flush(); err != nil {
		t.Fatalf("Flush() = %v, want no error", err)
	}
	save(folder.File("a"), map[string]string{"two": "2"})
	closed(t, folder)
	if err := folder.Flush(); err == nil {
		t.Error("Flush() after Close() = nil, want an error")
	}
	for name, wantMode := range map[string]os.FileMode{filepath.Join(path, "a.state"): 0o600, path: 0o700} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != wantMode {
			t.Errorf("mode of %s = %v, want %v", name, mode, wantMode)
		}
	}

	folder = open(t, path)
	defer closed(t, folder)
	want(t, "after a restart", folder.File("a"), map[string]string{"two": "2"})
	want(t, "after a restart", folder.File("b"), map[string]string{"one": "other"})
	want(t, "of what was never saved", folder.File("c"), nil)
	if h := folder.Health(); h != (statefile.Health{Persisted: true}) {
		t.Errorf("Health() = %+v, want persisted and nothing else", h)
	}
}

// child is set in the environment of a process that runs a part of a test.
const child = "STATEFILE_TEST_CHILD"

// inChild runs the test again in a separate process, with that part.
func inChild(t *testing.T, part string, how ...func(*exec.Cmd)) (out string, err error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	command.Env = append(os.Environ(), child+"="+part)
	for _, change := range how {
		change(command)
	}
	text, err := command.CombinedOutput()
	return string(text), err
}

func TestASecondProcessIsLockedOut(t *testing.T) {
	t.Parallel()
	if path := os.Getenv(child); path != "" {
		_, err := statefile.Open(path, quiet())
		fmt.Printf("child: %v, %v\n", err, errors.Is(err, statefile.ErrLocked))
		return
	}
	path := t.TempDir()
	first := open(t, path)
	save(first.File("a"), map[string]string{"k": "v"})
	out, err := inChild(t, path)
	if err != nil || !strings.Contains(out, "in use by another hostler agent") || !strings.Contains(out, "systemctl status hostler") || !strings.Contains(out, ", true\n") {
		t.Errorf("Open() of a folder in use = %s, %v, want ErrLocked with a hint", out, err)
	}
	if _, err := statefile.Open(path, quiet()); !errors.Is(err, statefile.ErrLocked) {
		t.Errorf("Open() of a folder in use by this process = %v, want ErrLocked", err)
	}
	closed(t, first)
	if out, err := inChild(t, path); err != nil || !strings.Contains(out, "child: <nil>") {
		t.Errorf("Open() of a folder in use no more = %s, %v, want no error", out, err)
	}
	second := open(t, path)
	defer closed(t, second)
	want(t, "in the second", second.File("a"), map[string]string{"k": "v"})
}

func TestWritesAreDelayed(t *testing.T) {
	for name, tc := range map[string]struct {
		save  func(*statefile.File, func() any)
		delay time.Duration
	}{
		"a change is written within seconds": {(*statefile.File).Save, statefile.SaveDelay},
		"a heartbeat within half a minute":   {(*statefile.File).SaveLazily, statefile.LazyDelay},
		"what cannot wait at once":           {(*statefile.File).SaveNow, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				folder := open(t, path)
				var o owner
				stop := run(t, folder)
				started := time.Now()
				for i := range 100 { // each file is still written at most that often
					o.set("i", fmt.Sprint(i))
					tc.save(folder.File("a"), o.snapshot)
					if tc.delay == 0 {
						break
					}
					time.Sleep(tc.delay / 10)
				}
				time.Sleep(tc.delay + time.Millisecond)
				synctest.Wait()
				wantWrites := 1
				if tc.delay > 0 {
					wantWrites = int(time.Since(started) / tc.delay)
				}
				if n := o.writes(); n < wantWrites-1 || n > wantWrites {
					t.Errorf("written in %v = %d times, want %d", time.Since(started), n, wantWrites)
				}
				before := o.writes()
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if n := o.writes(); n != before {
					t.Errorf("a day without a change wrote %d times, want none", n-before)
				}
				stop()
				closed(t, folder)
			})
			folder := open(t, path)
			defer closed(t, folder)
			last := map[string]string{"i": "99"}
			if tc.delay == 0 {
				last = map[string]string{"i": "0"}
			}
			want(t, "after a restart", folder.File("a"), last)
		})
	}
}

func TestUrgentChangesAreWrittenFirst(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		folder := open(t, path)
		stop := run(t, folder)
		var o owner
		folder.File("a").SaveLazily(o.snapshot)
		time.Sleep(time.Second)
		folder.File("a").SaveNow(o.snapshot)
		synctest.Wait()
		if n := o.writes(); n != 1 {
			t.Errorf("written at once = %d times, want once", n)
		}
		stop()
		closed(t, folder)
	})
}

// Not even root can write into a file that is in the place of the folder.
func TestWorksFromMemoryWithoutAFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var log journal
		folder, err := statefile.Open(path, log.logger())
		if err != nil {
			t.Fatalf("Open() = %v, want no error", err)
		}
		stop := run(t, folder)
		var o owner
		for i := range 1000 {
			o.set("i", fmt.Sprint(i))
			folder.File("a").Save(o.snapshot)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		want(t, "from memory", folder.File("a"), map[string]string{"i": "999"})
		h := folder.Health()
		if h.Persisted || !strings.HasPrefix(h.Message, "not persisted: mkdir "+path) {
			t.Errorf("Health() = %+v, want not persisted and why", h)
		}
		if n := log.count("cannot persist state"); n != 1 {
			t.Errorf("warnings = %d, want 1 in:\n%s", n, log.String())
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(statefile.RetryDelay + time.Millisecond)
		synctest.Wait()
		if h := folder.Health(); !h.Persisted || h.Message != "" {
			t.Errorf("Health() with the way clear = %+v, want persisted", h)
		}
		if n := log.count("persisted again"); n != 1 {
			t.Errorf("messages about recovery = %d, want 1 in:\n%s", n, log.String())
		}
		stop()
		closed(t, folder)
	})
	folder := open(t, path)
	defer closed(t, folder)
	want(t, "after a restart", folder.File("a"), map[string]string{"i": "999"})
}

func TestAFileThatCannotBeWrittenBlocksNoOther(t *testing.T) {
	for name, write := range map[string]func(*statefile.Folder){
		"a state file": func(f *statefile.Folder) { save(f.File("stuck"), map[string]string{"k": "v"}) },
		"notes": func(f *statefile.Folder) {
			_ = f.Notes("stuck").Write(map[string][]byte{"k": []byte(`"v"`)}, nil)
		},
		"a value that is no JSON": func(f *statefile.Folder) {
			f.File("stuck").Save(func() any { return func() {} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			for _, block := range []string{"stuck.state.new/full", "stuck.json.new/full"} {
				if err := os.MkdirAll(filepath.Join(path, block), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			folder := open(t, path)
			write(folder)
			save(folder.File("a"), map[string]string{"k": "v"})
			if err := folder.File("a").Flush(); err != nil {
				t.Errorf("Flush() of another file = %v", err)
			}
			if err := folder.Flush(); err == nil {
				t.Error("Flush() = nil, want an error")
			}
			if err := folder.File("a").Flush(); err != nil {
				t.Errorf("Flush() of another file after that = %v", err)
			}
			stuck := folder.File("stuck").Flush
			if name == "notes" {
				stuck = folder.Notes("stuck").Flush
			}
			if err := stuck(); err == nil {
				t.Error("Flush() of the file = nil, want an error")
			}
			if h := folder.Health(); h.Persisted || !strings.Contains(h.Message, "stuck.") {
				t.Errorf("Health() = %+v, want not persisted, with the file", h)
			}
			if _, err := os.Stat(filepath.Join(path, "a.state")); err != nil {
				t.Errorf("the other file: %v, want it written", err)
			}
			for _, block := range []string{"stuck.state.new", "stuck.json.new"} {
				if err := os.RemoveAll(filepath.Join(path, block)); err != nil {
					t.Fatal(err)
				}
			}
			save(folder.File("stuck"), map[string]string{"k": "later"})
			if err := folder.Flush(); err != nil || !folder.Health().Persisted {
				t.Errorf("Flush() with the way clear = %v, Health() = %+v, want all persisted", err, folder.Health())
			}
			closed(t, folder)
		})
	}
}

func TestAMemoryFolderWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // without a pause between attempts, the bubble's time would stand still and the test would hang
		folder := statefile.NewMemory()
		save(folder.File("a"), map[string]string{"k": "v"})
		if err := folder.Notes("node").Write(map[string][]byte{"cordon": []byte("1")}, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := folder.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run() = %v, want %v", err, context.DeadlineExceeded)
		}
		want(t, "from memory", folder.File("a"), map[string]string{"k": "v"})
		wantValues(t, "from memory", folder.Notes("node"), map[string]string{"cordon": "1"})
		if h := folder.Health(); h.Persisted || h.Message == "" {
			t.Errorf("Health() = %+v, want not persisted, with a message", h)
		}
		if err := folder.Flush(); err != nil {
			t.Errorf("Flush() = %v, want no error", err)
		}
		closed(t, folder)
	})
}

func TestUseByManyAtOnce(t *testing.T) {
	path := t.TempDir()
	folder := open(t, path)
	var o owner
	var all sync.WaitGroup
	values := folder.Values("v")
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				o.set(fmt.Sprint(i), fmt.Sprint(j))
				folder.File("a").SaveNow(o.snapshot)
				_ = values.Write(map[string][]byte{fmt.Sprint(i): fmt.Append(nil, j)}, nil)
				var got map[string]string
				folder.File("a").Load(&got)
				if err := folder.Flush(); err != nil {
					t.Errorf("Flush() = %v, want no error", err)
				}
				_ = folder.Health()
			}
		})
	}
	all.Wait()
	closed(t, folder)
	folder = open(t, path)
	defer closed(t, folder)
	want(t, "after all", folder.File("a"), o.value)
}

func TestTheStateOfAnEarlierBuildIsLeftAlone(t *testing.T) {
	path := t.TempDir()
	former := filepath.Join(path, "state.db")
	if err := os.WriteFile(former, []byte("of before"), 0o644); err != nil {
		t.Fatal(err)
	}
	var log journal
	folder, err := statefile.Open(path, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	save(folder.File("a"), map[string]string{"k": "v"})
	closed(t, folder)
	if text, err := os.ReadFile(former); err != nil || string(text) != "of before" || log.count("ignored state file of an earlier build") != 1 {
		t.Errorf("state.db = %q, %v, want it untouched, and that said once:\n%s", text, err, log.String())
	}
}
