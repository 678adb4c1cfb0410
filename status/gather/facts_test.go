package gather

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
)

func TestListsAreRequestedRarely(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		added := runtime.Event{Runtime: "containerd", Type: runtime.ImageAdded}
		for _, step := range []struct {
			what   string
			pass   time.Duration
			events []runtime.Event
			guard  shutdown.State
			lists  int // so far
		}{
			{"at first", 0, nil, shutdown.Armed, 1},
			{"at once again", 0, nil, shutdown.Armed, 1},
			{"while nothing happens", 4 * time.Minute, nil, shutdown.Armed, 1},
			{"after five minutes", time.Minute, nil, shutdown.Armed, 2},
			{"at the first of a pull's many events", time.Second, []runtime.Event{added, added}, shutdown.Armed, 2},
			{"when the pull's events have settled", 10 * time.Second, nil, shutdown.Armed, 3},
			{"after the end of a container", time.Minute, []runtime.Event{{Type: runtime.ContainerExited}}, shutdown.Armed, 3},
			{"after an image went", 0, []runtime.Event{{Type: runtime.ImageRemoved}}, shutdown.Armed, 4},
			{"in a drain, which must not wait", time.Hour, []runtime.Event{added}, shutdown.Draining, 4},
			{"after it was cancelled", 0, nil, shutdown.Armed, 5},
		} {
			time.Sleep(step.pass)
			for _, e := range step.events {
				b.facts.Notice(e)
			}
			b.guard.State = step.guard
			b.facts.Now(t.Context(), nil)
			if got := len(b.runtime.Calls(runtimetest.Images)); got != step.lists {
				t.Errorf("%s: images were listed %d times, want %d", step.what, got, step.lists)
			}
		}
	})
}

func ofImages(fs status.Filesystem) bool { return fs.Role == status.RoleImage }

func TestFoldersOfAPodsStartAreMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		found := slices.ContainsFunc(b.facts.Now(t.Context(), nil).Filesystems, func(fs status.Filesystem) bool {
			return fs.Role == status.RoleStart && fs.Path == "/run" && fs.Problem == ""
		})
		if !found {
			t.Error("Now() has no filesystem of /run")
		}
	})
}

func TestTheLastListOfAFailingRuntimeStays(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.runtime.AddImage(runtimetest.ImageSpec{Tags: []string{"example.net/a:1"}})
		before := b.facts.Now(t.Context(), nil)
		if len(before.Images) != 1 || !slices.ContainsFunc(before.Filesystems, ofImages) {
			t.Fatalf("Now() = %d images, filesystems %v, want one of images", len(before.Images), before.Filesystems)
		}
		injection := b.runtime.Inject(runtimetest.Every, runtimetest.Fault{Err: errors.New("gone")})
		for range 5 {
			time.Sleep(10 * time.Minute)
			f := b.facts.Now(t.Context(), nil)
			if len(f.Images) != 1 || !slices.ContainsFunc(f.Filesystems, ofImages) {
				t.Errorf("Now() without the runtime = %d images, filesystems %v, want the last ones", len(f.Images), f.Filesystems)
			}
		}
		before10 := len(b.runtime.Calls(runtimetest.Images))
		for range 60 {
			time.Sleep(10 * time.Second)
			b.facts.Now(t.Context(), nil)
		}
		if tries := len(b.runtime.Calls(runtimetest.Images)) - before10; tries < 9 || tries > 11 {
			t.Errorf("lists were tried %d times in 10 minutes without the runtime, want about one a minute", tries)
		}
		injection.Release()
		time.Sleep(maxListPause)
		b.runtime.AddImage(runtimetest.ImageSpec{Tags: []string{"example.net/b:1"}})
		if f := b.facts.Now(t.Context(), nil); len(f.Images) != 2 {
			t.Errorf("Now() with the runtime back = %d images, want 2", len(f.Images))
		}
	})
}

// The runtime of a slow machine needs all the time for its images, just after the agent was restarted.
func TestImagesThatAreLateDoNotHideTheirFilesystem(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.runtime.Inject(runtimetest.Images, runtimetest.Fault{Hang: true})
		if f := b.facts.Now(t.Context(), nil); !slices.ContainsFunc(f.Filesystems, ofImages) || f.Missing.Filesystems {
			t.Errorf("Now() = filesystems %+v, unlisted: %t, want one of images", f.Filesystems, f.Missing.Filesystems)
		}
	})
}

// Filesystems that were never listed are not known for a minute, and missing after that.
func TestFilesystemsThatWereNotListedYetAreNotMissing(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.runtime.Inject(runtimetest.Every, runtimetest.Fault{Hang: true})
		for _, want := range []bool{true, true, false, false} {
			if f := b.facts.Now(t.Context(), nil); f.Missing.Filesystems != want {
				t.Errorf("Now() = unlisted: %t, want %t", f.Missing.Filesystems, want)
			}
			time.Sleep(firstList / 2)
		}
	})
}

func TestAScanOfTheHostIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.runtime.Inject(runtimetest.Every, runtimetest.Fault{Hang: true})
		began := time.Now()
		f := b.facts.Now(t.Context(), nil)
		if took := time.Since(began); took > ProbeTimeout {
			t.Errorf("Now() with a runtime that hangs took %v, want at most %v", took, ProbeTimeout)
		}
		if f.Machine.MachineID == "" || f.Shutdown.State != "Armed" {
			t.Errorf("Now() = %+v, want the rest of the facts", f)
		}
	})
}

// Images that the Node does not list need not be in memory.
func TestFactsKeepTheImagesThatANodeLists(t *testing.T) {
	for limit, want := range map[int][]string{2: {"sha256:30", "sha256:20"}, -1: {"sha256:10", "sha256:20", "sha256:30"}} {
		bubble(t, func(t *testing.T, b *bed) {
			for _, size := range []uint64{10, 30, 20} {
				b.runtime.AddImage(runtimetest.ImageSpec{ID: fmt.Sprint("sha256:", size), ReportedBytes: size})
			}
			b.facts.options.MaxImages = func() int { return limit }
			list, _ := b.facts.lists(t.Context(), false)
			var ids []string
			for _, img := range list {
				ids = append(ids, img.ID)
			}
			if limit < 0 {
				slices.Sort(ids)
			}
			if !slices.Equal(ids, want) {
				t.Errorf("lists() = %v with a limit of %d, want %v", ids, limit, want)
			}
		})
	}
}

func TestAHostThatGoesDownIsDrainingUntilTheGuardKnowsBetter(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		began := time.Now()
		needed := metav1.Duration{Duration: 36 * time.Second}
		running, over := &journal.Record{StartedAt: began}, &journal.Record{StartedAt: began, FinishedAt: began}
		cancelled := &journal.Record{StartedAt: began, CancelledAt: began}
		for _, c := range []struct {
			what   string
			after  time.Duration
			guard  shutdown.Status
			active bool
		}{
			{"while it drains", 0, shutdown.Status{State: shutdown.Draining, Current: running}, true},
			{"while the lock is given up", 0, shutdown.Status{State: shutdown.Released, Current: over}, true},
			{"before it has looked after a restart amid a drain", 0, shutdown.Status{Current: running, InhibitDelayNeeded: needed}, true},
			{"when it has looked, and armed", 0, shutdown.Status{State: shutdown.Armed, InhibitDelayNeeded: needed}, false},
			{"before it has looked, after one that is over", 0, shutdown.Status{Current: over, InhibitDelayNeeded: needed}, false},
			{"before its first check, after a cancelled shutdown", 0, shutdown.Status{Current: cancelled, InhibitDelayNeeded: needed}, false},
			{"where it cannot look for longer than a drain takes", 36 * time.Second, shutdown.Status{Current: running, InhibitDelayNeeded: needed}, false},
		} {
			time.Sleep(c.after)
			b.guard = c.guard
			if d := b.facts.Now(t.Context(), nil).Draining; d.Active != c.active || d.Active && !d.Since.Equal(began) {
				t.Errorf("Draining %s = %+v, want it active: %v, since %v", c.what, d, c.active, began)
			}
		}
	})
}
