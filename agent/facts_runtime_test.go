package agent

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
	a := newAgent(t, s.socket)
	if took := time.Since(start); took > listTimeout {
		t.Errorf("New() took %v: the first lease waits for a runtime", took)
	}
	start = time.Now()
	facts := a.facts.now(t.Context(), nil)
	if took := time.Since(start); took > factsTimeout+time.Second {
		t.Errorf("now() took %v, want at most %v", took, factsTimeout)
	}
	i := slices.IndexFunc(facts.Filesystems, func(fs status.Filesystem) bool { return fs.Role == status.RoleNode })
	if i < 0 || facts.Filesystems[i].Problem != "" {
		t.Errorf("now() = filesystems %+v, want the node filesystem measured", facts.Filesystems)
	}
}

func TestWhatOneRuntimeLastListedStandsBesideAnothersNews(t *testing.T) {
	first, second := newContainerd(t), newContainerd(t)
	a := newAgent(t, first.socket, second.socket)
	images := func() (ids []string) {
		a.facts.mu.Lock()
		a.facts.listedAt = time.Time{} // long ago
		a.facts.mu.Unlock()
		list, filesystems := a.facts.lists(t.Context(), false)
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
	a := newAgent(t, s.socket)
	s.listing = func() { a.facts.notice(runtime.Event{Type: runtime.ImageAdded}) }
	a.facts.lists(t.Context(), false)
	a.facts.mu.Lock()
	defer a.facts.mu.Unlock()
	if !a.facts.stale {
		t.Errorf("stale = false after an image came while images were listed, want true")
	}
}
