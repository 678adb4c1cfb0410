package lastused_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// A pull of an existing image shows that it is needed.
func TestTrackerCountsAPullAsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := runtimetest.NewFake(runtimetest.Options{})
		addImage(fake, "a")
		tracker, stop := start(t, newStore(), fake, &logBuffer{})
		defer stop()
		// containerd updates the record of a name that existed.
		for _, kind := range []runtime.EventType{runtime.ImageAdded, runtime.Changed} {
			time.Sleep(10 * time.Hour)
			pulled := time.Now()
			tracker.Notify(runtime.Event{Runtime: "fake", Type: kind, Image: "quay.io/org/a:1"})
			time.Sleep(time.Minute)
			if use := tracker.Use("fake", "sha256:a"); !use.FirstSeen.Equal(pulled) {
				t.Errorf("Use() = %+v, want first seen at the pull, %s", use, pulled)
			}
		}
	})
}

// The list in Observe may be older than the event.
func TestTrackerKeepsAPullThatAListDoesNotShowYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := runtimetest.NewFake(runtimetest.Options{})
		addImage(fake, "a")
		tracker, err := lastused.New(lastused.Options{
			Store: newStore(), Runtimes: func() []lastused.Runtime { return nil }, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		images, err := fake.Images(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tracker.Observe("fake", nil, images)
		time.Sleep(10 * time.Hour)
		tagged := time.Now()
		tracker.Notify(runtime.Event{Runtime: "fake", Type: runtime.ImageAdded, Image: "quay.io/org/new:1"})
		tracker.Observe("fake", nil, images) // listed just before
		images[0].Tags = append(images[0].Tags, "quay.io/org/new:1")
		tracker.Observe("fake", nil, images)
		if use := tracker.Use("fake", "sha256:a"); !use.FirstSeen.Equal(tagged) {
			t.Errorf("Use() = %+v, want first seen at %s, when it got its new name", use, tagged)
		}
		time.Sleep(time.Hour)
		tracker.Observe("fake", nil, images)
		if use := tracker.Use("fake", "sha256:a"); !use.FirstSeen.Equal(tagged) {
			t.Errorf("Use() after another hour = %+v, want first seen at %s as before", use, tagged)
		}
	})
}

func TestTrackerForgetsPullsThatNoListShows(t *testing.T) {
	tracker, err := lastused.New(lastused.Options{
		Store: newStore(), Runtimes: func() []lastused.Runtime { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	arrive := func(i int) runtime.Event {
		return runtime.Event{Runtime: "fake", Type: runtime.ImageAdded, Image: fmt.Sprintf("quay.io/org/i:%d", i)}
	}
	known := func(i int) bool {
		img := runtime.Image{Runtime: "fake", ID: "sha256:x"}
		return tracker.NewsOf(&img, []string{fmt.Sprintf("quay.io/org/i:%d", i)}, lastused.Use{})
	}
	for i := range 20_000 { // a host that only pulls, and whose list is too large
		tracker.Notify(arrive(i))
	}
	if known(0) || !known(19_999) {
		t.Errorf("NewsOf() of the first of 20,000 arrivals = %v, of the last %v, want only the last known", known(0), known(19_999))
	}
}

// A container may be created and removed between two scans.
func TestTrackerCountsAContainerThatNoListShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := runtimetest.NewFake(runtimetest.Options{})
		img := addImage(fake, "a")
		tracker, stop := start(t, newStore(), fake, &logBuffer{})
		defer stop()
		time.Sleep(10 * time.Hour)
		known, used := tracker.Use("fake", "sha256:a"), time.Now()
		for _, kind := range []runtime.EventType{runtime.ContainerCreated, runtime.ContainerStarted, runtime.ContainerExited, runtime.ContainerRemoved} {
			e := runtime.Event{Runtime: "fake", Type: kind, ContainerID: "short"}
			if kind == runtime.ContainerCreated {
				e.Image = "quay.io/org/a:1"
			}
			tracker.Notify(e)
		}
		if !tracker.NewsOf(&img, []string{"quay.io/org/a:1"}, known) {
			t.Errorf("NewsOf() = false right after a container was made, want true")
		}
		time.Sleep(time.Minute)
		if use := tracker.Use("fake", "sha256:a"); !use.LastUsed.Equal(used) || !use.FirstSeen.Equal(known.FirstSeen) {
			t.Errorf("Use() = %+v, want used at %s and first seen as before, %s", use, used, known.FirstSeen)
		}
	})
}

// detailed is a runtime that reports when images were pulled.
type detailed struct {
	*runtimetest.Fake
	came func() time.Time
}

func (d detailed) DetailedImages(ctx context.Context) ([]runtime.Image, error) {
	images, err := d.Images(ctx)
	for i := range images {
		images[i].CreatedAt = d.came()
	}
	return images, err
}

func TestTrackerUsesPullTimesOfTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := runtimetest.NewFake(runtimetest.Options{})
		addImage(fake, "a")
		came := time.Now().Add(-100 * time.Hour)
		rt := detailed{fake, func() time.Time { return came }}
		s := newStore()
		check := func() lastused.Use {
			t.Helper()
			tracker, err := lastused.New(lastused.Options{
				Store: s, Runtimes: func() []lastused.Runtime { return []lastused.Runtime{rt} }, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := tracker.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Run() = %v, want %v", err, context.DeadlineExceeded)
			}
			return tracker.Use("fake", "sha256:a")
		}
		if use := check(); !use.FirstSeen.Equal(came) {
			t.Errorf("Use() of an image that was there before = %+v, want first seen at %s", use, came)
		}
		writes, _ := s.count()
		time.Sleep(time.Hour)
		if use := check(); !use.FirstSeen.Equal(came) {
			t.Errorf("Use() after a restart = %+v, want first seen at %s as before", use, came)
		}
		if again, _ := s.count(); again != writes {
			t.Errorf("a restart without a change wrote %d times, want none", again-writes)
		}
		came = time.Now().Add(-10 * time.Minute) // pulled while the tracker was not running
		if use := check(); !use.FirstSeen.Equal(came) {
			t.Errorf("Use() after a pull that nobody saw = %+v, want first seen at %s", use, came)
		}
		old := came
		came = time.Now().Add(24 * time.Hour)
		if use := check(); !use.FirstSeen.Equal(old) {
			t.Errorf("Use() where the runtime's times are in the future = %+v, want first seen at %s", use, old)
		}
	})
}
