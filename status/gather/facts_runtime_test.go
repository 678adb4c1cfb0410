package gather

import (
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

func TestTheLastListOfAFailingRuntimeIsMergedWithNewLists(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		second := runtimetest.NewFake(runtimetest.Options{Name: "docker"})
		t.Cleanup(func() { _ = second.Close() })
		if err := b.runtimes.Set().Add(second); err != nil {
			t.Fatal(err)
		}
		b.runtime.AddImage(runtimetest.ImageSpec{ID: "sha256:1"})
		second.AddImage(runtimetest.ImageSpec{ID: "sha256:2"})
		expect := func(when string, want ...string) {
			t.Helper()
			time.Sleep(listAge + time.Second)
			list, filesystems := b.facts.lists(t.Context(), false)
			if len(filesystems) != 2 {
				t.Errorf("lists() %s = filesystems %+v, want one of each runtime", when, filesystems)
			}
			var ids []string
			for _, img := range list {
				ids = append(ids, img.ID)
			}
			slices.Sort(ids)
			if !slices.Equal(ids, want) {
				t.Errorf("lists() %s = images %v, want %v", when, ids, want)
			}
		}
		expect("at first", "sha256:1", "sha256:2")
		second.Inject(runtimetest.Every, runtimetest.Fault{Err: runtime.ErrUnavailable})
		b.runtime.AddImage(runtimetest.ImageSpec{ID: "sha256:3"})
		expect("with the second runtime gone", "sha256:1", "sha256:2", "sha256:3")
	})
}

func TestAnEventDuringAListIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		hung := b.runtime.Inject(runtimetest.Images, runtimetest.Fault{Hang: true})
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.facts.lists(t.Context(), false)
		}()
		<-hung.Reached()
		b.facts.Notice(runtime.Event{Type: runtime.ImageAdded})
		hung.Release()
		<-done
		b.facts.mu.Lock()
		defer b.facts.mu.Unlock()
		if !b.facts.stale {
			t.Error("stale = false after an image came while images were listed, want true")
		}
	})
}
