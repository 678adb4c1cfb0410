package restart

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
)

// emptyHost returns a host with the folder /srv.
func emptyHost(t *testing.T) (h *host, root string) {
	t.Helper()
	proc := t.TempDir()
	root = filepath.Join(proc, "1/root")
	if err := os.MkdirAll(filepath.Join(root, "srv"), 0o755); err != nil {
		t.Fatal(err)
	}
	return newHost(proc), root
}

func named(id string) pending { return pending{key: key{"docker", id}} }

func withPaths(paths ...string) need { return need{StartNeeds: runtime.StartNeeds{Paths: paths}} }

// If a file server hangs, the host has not changed. Otherwise a container would lose an attempt.
func TestAnUnreadablePictureIsNoChange(t *testing.T) {
	h, root := emptyHost(t)
	web := named("web")
	needs := map[pending]need{web: withPaths("/srv")}
	before := h.pictures(t.Context(), needs)[web]
	if !h.begin(t.Context(), web) { // an earlier read has not returned
		t.Fatal("the files of web are being read")
	}
	if differs(before, h.pictures(t.Context(), needs)[web]) {
		t.Error("a read that hangs counts as a change")
	}
	h.end(web)
	if err := os.Remove(filepath.Join(root, "srv")); err != nil {
		t.Fatal(err)
	}
	if !differs(before, h.pictures(t.Context(), needs)[web]) {
		t.Error("a folder that has gone is no change")
	}
}

// A path on a mount that hangs must not end the wait of other containers for their mounts.
func TestAPathThatHangsHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, root := emptyHost(t)
		if err := os.Symlink("/mnt/nas", filepath.Join(root, "data")); err != nil {
			t.Fatal(err)
		}
		stuck, db := named("stuck"), named("db")
		needs := map[pending]need{stuck: withPaths("/hangs"), db: withPaths("/data")}
		back := make(chan struct{})
		read := readEach(t.Context(), h, needs, func(n need) bool {
			if n.Paths[0] == "/hangs" {
				<-back
			}
			return true
		})
		if !read[db] || read[stuck] {
			t.Errorf("read %v, want only the files of db", read)
		}
		for range 2 {
			got := h.resolve(t.Context(), needs)
			if want := []string{"/data", "/mnt/nas"}; len(got) != 1 || !slices.Equal(got[db], want) {
				t.Errorf("resolve() = %v, want %v for db alone", got, want)
			}
		}
		close(back)
		synctest.Wait()
		if got := h.resolve(t.Context(), needs); len(got) != 2 {
			t.Errorf("resolve() = %v after the read has returned, want both", got)
		}
	})
}

// onData is a runtime whose containers depend on /data.
type onData struct{ *runtimetest.Fake }

func (onData) StartNeeds(context.Context, runtime.Container) (runtime.StartNeeds, error) {
	return runtime.StartNeeds{Paths: []string{"/data"}}, nil
}

// If many reads hang, the links in the paths of other containers cannot be read.
func TestPathsWhoseLinksAreNotReadYetAreNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := runtime.NewSet(onData{runtimetest.NewFake(runtimetest.Options{Name: "docker"})})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = set.Close() }()
		h, _ := emptyHost(t)
		r := New(Options{Set: set, Log: slog.New(slog.DiscardHandler), Proc: h.proc})
		db := journal.Restart{Runtime: "docker", ID: "db", AskedAt: time.Now()}
		facts := func() *Facts {
			return &Facts{
				Restarts: []journal.Restart{db}, Unreachable: func(string) bool { return false },
				Pods: []runtime.Pod{{Runtime: "docker", Containers: []runtime.Container{{
					Runtime: "docker", ID: "db", State: runtime.Exited, Restart: runtime.RestartUnlessStopped, StartedAt: time.Now().Add(-time.Hour), FinishedAt: time.Now(),
				}}}},
			}
		}
		for i := range maxReads {
			r.host.begin(t.Context(), named(fmt.Sprint("hangs-", i)))
		}
		f := facts()
		r.readHost(t.Context(), f)
		if needs, known := f.Host.Needs(db); known || len(needs.Paths) != 1 {
			t.Errorf("while reads hang, db needs %v, known %t; want its path, not known", needs.Paths, known)
		}
		for i := range maxReads {
			r.host.end(named(fmt.Sprint("hangs-", i)))
		}
		for range 2 {
			f = facts()
			r.readHost(t.Context(), f)
			if needs, known := f.Host.Needs(db); !known || len(needs.Paths) != 1 {
				t.Errorf("when the reads have returned, db needs %v, known %t; want its path, known", needs.Paths, known)
			}
		}
	})
}
