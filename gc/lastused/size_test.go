package lastused_test

import (
	"fmt"
	"log/slog"
	goruntime "runtime"
	"testing"
	"time"

	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/runtime"
)

func TestTrackerOfTenThousandImagesIsSmall(t *testing.T) {
	const count = 10_000
	images := make([]runtime.Image, count)
	for i := range images {
		images[i] = runtime.Image{Runtime: "containerd", ID: fmt.Sprintf("sha256:%064x", i), Tags: []string{fmt.Sprintf("registry.example.com/team/app-%d:1", i)}}
	}
	tracker, err := lastused.New(lastused.Options{Store: newStore(), Runtimes: func() []lastused.Runtime { return nil }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	tracker.Observe("containerd", nil, images)
	got := int64(heap()) - int64(before)
	// The IDs of the images stay, too: they belong to the test's list.
	got += count * 71
	if got > 5<<20 {
		t.Errorf("a tracker of %d images takes %d bytes, want at most 5 MiB", count, got)
	}
	t.Logf("%d images take %d bytes", count, got)
	goruntime.KeepAlive(tracker)
	goruntime.KeepAlive(images)
}

func heap() uint64 {
	var stats goruntime.MemStats
	goruntime.GC()
	goruntime.GC()
	goruntime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// FuzzStore checks that the tracker works with any stored content, and that it writes what it
// understood.
func FuzzStore(f *testing.F) {
	f.Add("containerd", "sha256:a", "2026-11-20T12:00:00Z", "")
	f.Add("", "", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
	f.Fuzz(func(t *testing.T, runtimeName, id, firstSeen, lastUsed string) {
		s := newStore()
		var use lastused.Use
		_ = use.FirstSeen.UnmarshalText([]byte(firstSeen))
		_ = use.LastUsed.UnmarshalText([]byte(lastUsed))
		s.SaveLazily(func() any { return map[string]map[string]lastused.Use{runtimeName: {id: use}} })
		load := func() *lastused.Tracker {
			tracker, err := lastused.New(lastused.Options{Store: s, Runtimes: func() []lastused.Runtime { return nil }, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return tracker
		}
		tracker := load()
		img := runtime.Image{Runtime: "containerd", ID: "sha256:a", Tags: []string{"docker.io/library/a:1"}}
		tracker.Observe("containerd", nil, []runtime.Image{img})
		want := tracker.Use("containerd", "sha256:a")
		if want.FirstSeen.IsZero() && want.LastUsed.IsZero() && (runtimeName != "containerd" || id != "sha256:a") {
			t.Fatalf("Use() of an image that is there = %+v, want a time", want)
		}
		if got := load().Use("containerd", "sha256:a"); !near(got.FirstSeen, want.FirstSeen) || !near(got.LastUsed, want.LastUsed) {
			t.Errorf("Use() after a restart = %+v, want %+v", got, want)
		}
	})
}

// near allows for the lost monotonic clock.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < time.Second }

// BenchmarkObserve scans 10,000 images without changes.
func BenchmarkObserve(b *testing.B) {
	const count = 10_000
	images := make([]runtime.Image, count)
	for i := range images {
		images[i] = runtime.Image{Runtime: "containerd", ID: fmt.Sprintf("sha256:%064x", i), Tags: []string{fmt.Sprintf("registry.example.com/team/app-%d:1", i)}}
	}
	tracker, err := lastused.New(lastused.Options{Store: newStore(), Runtimes: func() []lastused.Runtime { return nil }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		tracker.Observe("containerd", nil, images)
	}
}
