package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/shutdown/journal"
)

var quiet = slog.New(slog.DiscardHandler)

// keep runs a journal's writer until the returned function is called, which waits until all is on
// disk.
func keep(t *testing.T, j *journal.Journal) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.Run(ctx)
	}()
	return func() {
		flush, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		j.Flush(flush)
		cancel()
		<-done
	}
}

// lockedBuffer is a log that another goroutine can read.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func pods(outcomes ...journal.Outcome) []journal.PodRecord {
	list := []journal.PodRecord{}
	for i, o := range outcomes {
		list = append(list, journal.PodRecord{Runtime: "containerd", ID: string(rune('a' + i)), Name: string(rune('a' + i)), Outcome: o})
	}
	return list
}

func TestTheVerdictOfTheNextBoot(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	refs := []journal.Ref{{Runtime: "containerd", ID: "a", Name: "a"}}
	marked := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // start of synctest's clock
	tests := []struct {
		name  string
		steps func(*journal.Journal)
		want  *journal.Record
	}{
		{"nothing happened", func(*journal.Journal) {}, nil},
		{
			"pods ran and nobody stopped them", func(j *journal.Journal) { j.Mark(refs) },
			&journal.Record{BootID: "one", Trigger: journal.TriggerUnknown, AsOf: marked, Pods: pods(journal.Left), Error: "the host went down without a drain"},
		},
		{
			"no pods ran", func(j *journal.Journal) { j.Mark(refs); j.Mark([]journal.Ref{}) },
			&journal.Record{BootID: "one", Trigger: journal.TriggerUnknown, AsOf: marked, Error: "the host went down without a drain", Pods: pods()},
		},
		{"nobody watched any more", func(j *journal.Journal) { j.Mark(refs); j.Unmark() }, nil},
		{"a drain came to its end", func(j *journal.Journal) {
			j.Mark(refs)
			j.Put(&journal.Record{BootID: "one", Trigger: journal.TriggerShutdown, StartedAt: began})
			j.Put(&journal.Record{BootID: "one", Trigger: journal.TriggerShutdown, Kind: "reboot", StartedAt: began, FinishedAt: began.Add(time.Second), Graceful: true, Pods: pods(journal.Stopped)})
		}, &journal.Record{BootID: "one", Trigger: journal.TriggerShutdown, Kind: "reboot", StartedAt: began, FinishedAt: began.Add(time.Second), Graceful: true, Pods: pods(journal.Stopped)}},
		{"a drain was cut off", func(j *journal.Journal) {
			j.Mark(refs)
			j.Put(&journal.Record{BootID: "one", StartedAt: began, Pods: pods(journal.Killed, "")})
		}, &journal.Record{BootID: "one", StartedAt: began, Pods: pods(journal.Killed, journal.Left), Error: "the host went down during the drain"}},
		{"a drain was cancelled, and then the power went", func(j *journal.Journal) {
			j.Mark(refs)
			j.Put(&journal.Record{BootID: "one", StartedAt: began, CancelledAt: began})
		}, &journal.Record{BootID: "one", Trigger: journal.TriggerUnknown, AsOf: marked, Pods: pods(journal.Left), Error: "the host went down without a drain"}},
		{"a finished drain did not bring the host down, the power cut did", func(j *journal.Journal) {
			j.Put(&journal.Record{BootID: "one", StartedAt: began, FinishedAt: began, Graceful: true, Pods: pods(journal.Stopped)})
			j.Settle()
			j.Mark(refs)
		}, &journal.Record{BootID: "one", Trigger: journal.TriggerUnknown, AsOf: marked, Pods: pods(journal.Left), Error: "the host went down without a drain"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "state", "shutdown.json")
				first := journal.Open(path, "one", quiet)
				stop := keep(t, first)
				tt.steps(first)
				stop()
				second := journal.Open(path, "two", quiet)
				if got := second.Last(); !reflect.DeepEqual(got, tt.want) {
					t.Errorf("Last() = %+v, want %+v", got, tt.want)
				}
				if got := second.Current(); got != nil {
					t.Errorf("Current() = %+v on the next boot, want nil", got)
				}
			})
		})
	}
}

func TestABootIDWithoutTheStartOfSystemdMatches(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second string
		same          bool
	}{
		{"the second process does not reach the service manager", "one@17", "one", true},
		{"the first process did not", "one", "one@17", true},
		{"the service manager was started again: a soft-reboot", "one@17", "one@18", false},
		{"the kernel was", "one@17", "two@17", false},
		{"the kernel was, and the service manager is not reached", "one@17", "two", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "shutdown.json")
				first := journal.Open(path, tt.first, quiet)
				stop := keep(t, first)
				first.Put(&journal.Record{BootID: tt.first, StartedAt: time.Now().UTC(), Pods: pods("")})
				stop()
				if got := journal.Open(path, tt.second, quiet); (got.Current() != nil) != tt.same || (got.Last() == nil) != tt.same {
					t.Errorf("Current() = %+v, Last() = %+v, want the drain to continue: %v", got.Current(), got.Last(), tt.same)
				}
				if got, err := journal.Peek(path, tt.second); err != nil || (got.Last == nil) != tt.same {
					t.Errorf("Peek() = %+v, %v, want the drain to continue: %v", got, err, tt.same)
				}
			})
		})
	}
}

func TestASecondProcessOfABootContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shutdown.json")
		first := journal.Open(path, "one", quiet)
		stop := keep(t, first)
		record := &journal.Record{BootID: "one", StartedAt: time.Now().UTC(), Pods: pods(journal.Stopped, "")}
		first.Put(record)
		stop()
		second := journal.Open(path, "one", quiet)
		if got := second.Current(); !reflect.DeepEqual(got, record) {
			t.Errorf("Current() = %+v, want %+v", got, record)
		}
		if got := second.Last(); got != nil {
			t.Errorf("Last() = %+v of a drain that runs, want nil", got)
		}
		stop = keep(t, second)
		finished := record.Clone()
		finished.FinishedAt = time.Now().UTC()
		second.Put(finished)
		second.Settle()
		stop()
		third := journal.Open(path, "one", quiet)
		if got := third.Last(); !reflect.DeepEqual(got, finished) || third.Current() != nil {
			t.Errorf("Last() = %+v, Current() = %+v, want %+v and nil", got, third.Current(), finished)
		}
	})
}

func TestAFaultyFileIsSetAside(t *testing.T) {
	for name, content := range map[string]string{
		"empty":              "",
		"zeroes":             strings.Repeat("\x00", 4096),
		"torn":               `{"version":1,"bootID":"one","record":{"boo`,
		"another version":    `{"version":2,"bootID":"one"}`,
		"no boot":            `{"version":1}`,
		"no start":           `{"version":1,"bootID":"one","record":{"bootID":"one"}}`,
		"not an object":      `[]`,
		"too large for sure": strings.Repeat(" ", 16<<20+1),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "shutdown.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			j := journal.Open(path, "two", slog.New(slog.NewTextHandler(&log, nil)))
			if j.Last() != nil || j.BootID() != "two" {
				t.Errorf("Open() of a file that is %s: last %+v, boot %q, want a fresh journal", name, j.Last(), j.BootID())
			}
			if got, err := os.ReadFile(path + ".corrupt"); err != nil || string(got) != content {
				t.Errorf("the file is not beside its path: %v", err)
			}
			if !strings.Contains(log.String(), "level=WARN") {
				t.Errorf("Open() logged %q, want a warning", log.String())
			}
		})
	}
}

func TestAFileThatCannotBeReadIsNotLost(t *testing.T) {
	ref := []journal.Ref{{Runtime: "containerd", ID: "a", Name: "a"}}
	const finished = `{"version":1,"bootID":"one","record":{"bootID":"one","startedAt":"2026-01-02T03:04:05Z","finishedAt":"2026-01-02T03:04:06Z","graceful":true,"pods":[]}}`
	tests := []struct {
		name    string
		boot    string
		content string // after the file becomes readable; empty if it never does
		settle  bool
		last    bool // results of Last and Current after the first write
		current bool
		aside   string
	}{
		{name: "in another boot it can be read later", boot: "two", content: finished, last: true},
		{name: "in the same boot it can be read later", boot: "one", content: finished, last: true, current: true},
		{name: "in the same boot it can be read when its drain is history", boot: "one", content: finished, settle: true, last: true},
		{name: "it proves faulty", boot: "two", content: "{", aside: ".corrupt"},
		{name: "it can never be read", boot: "two", aside: ".unreadable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "shutdown.json")
				// Root can read every file, but not a symbolic link to itself.
				if err := os.Symlink(path, path); err != nil {
					t.Fatal(err)
				}
				var log lockedBuffer
				j := journal.Open(path, tt.boot, slog.New(slog.NewTextHandler(&log, nil)))
				if _, err := os.Lstat(path); err != nil || j.Last() != nil || j.Current() != nil || strings.Count(log.String(), "level=WARN") != 1 {
					t.Errorf("Open() of a file that cannot be read: %v, last %+v, log %s, want a fresh journal, the file as it was, and a warning", err, j.Last(), log.String())
				}
				if tt.settle {
					j.Settle()
				}
				if tt.content != "" {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				stop := keep(t, j)
				j.Mark(ref)
				stop()
				if got := j.Last(); (got != nil) != tt.last {
					t.Errorf("Last() = %+v, want one: %v", got, tt.last)
				}
				if got := j.Current(); (got != nil) != tt.current {
					t.Errorf("Current() = %+v, want one: %v", got, tt.current)
				}
				if again := journal.Open(path, tt.boot, quiet); (again.Last() != nil) != tt.last || again.BootID() != tt.boot {
					t.Errorf("on disk is %+v of boot %s, want a last shutdown: %v", again.Last(), again.BootID(), tt.last)
				}
				entries, err := os.ReadDir(filepath.Dir(path))
				if want := 1 + min(len(tt.aside), 1); err != nil || len(entries) != want {
					t.Errorf("the folder holds %v, %v, want %d entries", entries, err, want)
				}
				if tt.aside != "" {
					if _, err := os.Lstat(path + tt.aside); err != nil {
						t.Errorf("the faulty file is not set aside: %v", err)
					}
				}
			})
		})
	}
}

// Until then, nobody knows what a drain has stopped.
func TestAFileThatCannotBeReadIsReadAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shutdown.json")
		if err := os.Symlink(path, path); err != nil {
			t.Fatal(err)
		}
		j := journal.Open(path, "one", quiet)
		stop := keep(t, j)
		defer stop()
		time.Sleep(time.Second)
		if _, read := j.Found(); read {
			t.Error("Found() = read, want that it cannot be read yet")
		}
		drain := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		content := `{"version":1,"bootID":"one","held":[{"drain":"2026-01-02T03:04:05Z","trigger":"reboot","restarts":[{"runtime":"docker","id":"web"}]}]}`
		if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if _, read := j.Found(); !read || !j.UndoDrain(drain) {
			t.Errorf("Found() = read: %t, want its drain to be undone", read)
		}
	})
}

func TestAFileThatCannotBeReadIsWaitedForForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shutdown.json")
		if err := os.Symlink(path, path); err != nil {
			t.Fatal(err)
		}
		j := journal.Open(path, "one", quiet)
		stop := keep(t, j)
		defer stop()
		j.Mark([]journal.Ref{{Runtime: "docker", ID: "a"}}) // as a guard does, as soon as it has a list of pods
		for _, want := range []bool{false, true} {
			time.Sleep(40 * time.Second)
			_, read := j.Found()
			if _, err := os.Lstat(path + ".unreadable"); read != want || (err == nil) != want {
				t.Errorf("Found() = read: %t, set aside: %v, want both after a minute: %t", read, err, want)
			}
		}
	})
}

func TestAFailingDiskBlocksNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		obstacle := filepath.Join(folder, "state")
		if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(obstacle, "shutdown.json") // the parent is not a folder
		var log lockedBuffer
		j := journal.Open(path, "one", slog.New(slog.NewTextHandler(&log, nil)))
		before := strings.Count(log.String(), "level=WARN")
		stop := keep(t, j)
		for range 100 {
			j.Put(&journal.Record{StartedAt: time.Now()})
			synctest.Wait()
		}
		if got := strings.Count(log.String(), "level=WARN") - before; got != 1 {
			t.Errorf("100 failures gave %d warnings, want 1: %s", got, log.String())
		}
		if err := os.Remove(obstacle); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the journal was not written once it could be: %v", err)
		}
		stop()
	})
}

func TestRunningPodsAreWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shutdown.json")
		j := journal.Open(path, "one", quiet)
		stop := keep(t, j)
		defer stop()
		writes, last := 0, ""
		for i := range 60 {
			j.Mark([]journal.Ref{{ID: string(rune('A' + i))}})
			time.Sleep(time.Second)
			synctest.Wait()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(data) != last {
				writes, last = writes+1, string(data)
			}
		}
		if writes < 29 || writes > 31 {
			t.Errorf("a minute of changes gave %d writes, want one every two seconds", writes)
		}
	})
}

func TestEveryWriteLeavesAWholeFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shutdown.json")
		j := journal.Open(path, "one", quiet)
		stop := keep(t, j)
		for i := range 50 {
			j.Put(&journal.Record{BootID: "one", StartedAt: time.Now(), Pods: pods(make([]journal.Outcome, i)...)})
			synctest.Wait()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := journal.Decode(data); err != nil || len(r.Pods) != i {
				t.Fatalf("after write %d: %+v, %v, want %d pods", i, r, err, i)
			}
		}
		stop()
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(entries) != 1 {
			t.Errorf("the folder holds %v, %v, want the journal alone", entries, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"bootID":"one","watch":{"pods":[{"id":"a"}]}}`))
	f.Add([]byte(`{"version":1,"bootID":"one","record":{"startedAt":"2026-01-02T03:04:05Z","pods":[{"id":"a","grace":"3s"}]}}`))
	f.Add([]byte(`{"version":1,"bootID":"one","last":{"pods":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		record, err := journal.Decode(data)
		if err != nil {
			return
		}
		if record != nil && record.Graceful {
			for _, p := range record.Pods {
				if p.Outcome == journal.Left && record.Trigger == journal.TriggerUnknown {
					t.Errorf("Decode(%q) is graceful, with a pod left", data)
				}
			}
		}
		once, err := journal.Recode(data)
		if err != nil {
			t.Fatalf("Recode(%q): %v", data, err)
		}
		twice, err := journal.Recode(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("Recode(%s) = %s, %v, want the same", once, twice, err)
		}
	})
}

// The next process can read every record, whatever the names of pods and the answers of runtimes
// are.
func FuzzReread(f *testing.F) {
	f.Add("web", "stop container: it hangs", 1)
	f.Add("\x1b[31m\n\u202e\xff", strings.Repeat("x", 1<<19), 40)
	f.Fuzz(func(t *testing.T, name, reason string, n int) {
		path := filepath.Join(t.TempDir(), "shutdown.json")
		j := journal.Open(path, "one", slog.New(slog.DiscardHandler))
		stop := keep(t, j)
		r := &journal.Record{BootID: "one", StartedAt: time.Unix(5, 0), FinishedAt: time.Unix(6, 0), Error: reason}
		for i := range min(max(n, 1), 40) {
			r.Pods = append(r.Pods, journal.PodRecord{
				Runtime: "docker", ID: fmt.Sprint(i), Name: name, Namespace: name, Outcome: journal.Left, Error: reason,
				Stuck: []string{name}, ExitCodes: map[string]int32{name: 1},
			})
		}
		j.Put(r)
		stop()
		last := journal.Open(path, "two", slog.New(slog.DiscardHandler)).Last()
		if last == nil || len(last.Pods) != len(r.Pods) {
			t.Fatalf("the next boot reads %+v, want %d pods", last, len(r.Pods))
		}
		for _, p := range last.Pods {
			if len(p.Name) > sanitize.MaxName || len(p.Error) > sanitize.MaxText || strings.ContainsFunc(p.Name+p.Error, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("the next boot reads a pod named %.100q, whose error has %d bytes, want both bounded and printable", p.Name, len(p.Error))
			}
		}
	})
}

// If a journal would be too large, it omits the oldest parts.
func TestAJournalIsNeverTooLargeToRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shutdown.json")
	for boot := range 3 {
		j := journal.Open(path, fmt.Sprint(boot), slog.New(slog.DiscardHandler))
		if boot > 0 {
			if last := j.Last(); last == nil || last.BootID != fmt.Sprint(boot-1) || len(last.Pods) != 2500 {
				t.Fatalf("boot %d reads no record of the one before", boot)
			}
		}
		stop := keep(t, j)
		r := &journal.Record{BootID: fmt.Sprint(boot), StartedAt: time.Unix(5, 0), FinishedAt: time.Unix(6, 0)}
		for i := range 2500 {
			r.Pods = append(r.Pods, journal.PodRecord{Runtime: "docker", ID: fmt.Sprint(i), Outcome: journal.Left, Error: strings.Repeat("x", 4000)})
		}
		j.Put(r)
		stop()
	}
}

// TestSyncReturnsWhyTheStateIsNotOnDisk has a disk that fails and recovers, and a writer that does not run.
func TestSyncReturnsWhyTheStateIsNotOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		j := journal.Open(filepath.Join(dir, "shutdown.json"), "one", quiet)
		if err := j.Sync(t.Context()); err != nil {
			t.Errorf("Sync() = %v of a journal without a change, want nil", err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // no folder can be made there
			t.Fatal(err)
		}
		change := func() { j.Put(&journal.Record{BootID: "one", StartedAt: time.Now()}) }
		change()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := j.Sync(ctx); err == nil {
			t.Error("Sync() = nil without a writer, want an error")
		}
		stop := keep(t, j)
		defer stop()
		if err := j.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Errorf("Sync() = %v, want that the folder is none", err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if err := j.Sync(t.Context()); err != nil {
			t.Errorf("Sync() = %v, want nil after the disk has recovered", err)
		}
		change()
		if err := j.Sync(t.Context()); err != nil {
			t.Errorf("Sync() = %v of another change, want nil", err)
		}
	})
}
