package host

import (
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
)

// A runtime that hangs must not make the host's own filesystems look hung.
func TestAHungRuntimeLeavesTheFiguresOfTheHost(t *testing.T) {
	s := newContainerd(t)
	s.hangs.Store(true)
	start := time.Now()
	facts := factsOf(t, opened(t, s.socket), disarmed)
	if took := time.Since(start); took > listTimeout {
		t.Errorf("New() took %v: the first lease waits for a runtime", took)
	}
	start = time.Now()
	seen := facts.Now(t.Context(), nil)
	if took := time.Since(start); took > LookTimeout+time.Second {
		t.Errorf("Now() took %v, want at most %v", took, LookTimeout)
	}
	i := slices.IndexFunc(seen.Filesystems, func(fs status.Filesystem) bool { return fs.Role == status.RoleNode })
	if i < 0 || seen.Filesystems[i].Problem != "" {
		t.Errorf("Now() = filesystems %+v, want the node filesystem measured", seen.Filesystems)
	}
}

func TestWhatOneRuntimeLastListedStandsBesideAnothersNews(t *testing.T) {
	first, second := newContainerd(t), newContainerd(t)
	facts := factsOf(t, opened(t, first.socket, second.socket), disarmed)
	images := func() (ids []string) {
		facts.mu.Lock()
		facts.listedAt = time.Time{} // long ago
		facts.mu.Unlock()
		list, filesystems := facts.lists(t.Context(), false)
		if len(filesystems) != 2 {
			t.Errorf("lists() = filesystems %+v, want one of each runtime", filesystems)
		}
		for _, img := range list {
			ids = append(ids, img.ID)
		}
		slices.Sort(ids)
		return ids
	}
	want := []string{first.image.Load().(string), second.image.Load().(string)}
	slices.Sort(want)
	if got := images(); !slices.Equal(got, want) {
		t.Fatalf("lists() = images %v, want %v", got, want)
	}
	second.server.Stop()
	first.image.Store("sha256:new")
	want = []string{"sha256:new", second.image.Load().(string)}
	slices.Sort(want)
	if got := images(); !slices.Equal(got, want) {
		t.Errorf("lists() with the second runtime gone = images %v, want %v", got, want)
	}
}

func TestAnEventDuringAListIsNotLost(t *testing.T) {
	s := newContainerd(t)
	facts := factsOf(t, opened(t, s.socket), disarmed)
	s.listing = func() { facts.Notice(runtime.Event{Type: runtime.ImageAdded}) }
	facts.lists(t.Context(), false)
	facts.mu.Lock()
	defer facts.mu.Unlock()
	if !facts.stale {
		t.Errorf("stale = false after an image came while images were listed, want true")
	}
}
