package lastused_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// store is a Store in memory. It takes the value half a minute after a save, or when it is read.
type store struct {
	mu      sync.Mutex
	content []byte
	pending func() any
	writes  int
}

func newStore() *store { return &store{} }

func (s *store) Load(into any) {
	s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.content != nil {
		if err := json.Unmarshal(s.content, into); err != nil {
			panic(err)
		}
	}
}

func (s *store) SaveLazily(snapshot func() any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		time.AfterFunc(30*time.Second, s.flush)
	}
	s.pending = snapshot
}

// flush takes the pending value now.
func (s *store) flush() {
	s.mu.Lock()
	snapshot := s.pending
	s.pending = nil
	s.mu.Unlock()
	if snapshot == nil {
		return
	}
	content, err := json.Marshal(snapshot())
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content = content
	s.writes++
}

// images returns the stored value, by runtime and ID.
func (s *store) images() (images map[string]map[string]lastused.Use) {
	s.Load(&images)
	return images
}

func (s *store) count() (writes, entries int) {
	entries = len(s.images()["fake"])
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes, entries
}

// logBuffer is a log that can be read during writes.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start creates a tracker and runs it with the Fake and its events, until stop.
func start(t *testing.T, s *store, fake *runtimetest.Fake, log *logBuffer) (tracker *lastused.Tracker, stop func()) {
	t.Helper()
	tracker, err := lastused.New(lastused.Options{
		Store: s, Runtimes: func() []lastused.Runtime { return []lastused.Runtime{fake} }, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan runtime.Event)
	var wg sync.WaitGroup
	wg.Go(func() { _ = fake.Watch(ctx, events) })
	wg.Go(func() {
		for {
			select {
			case e := <-events:
				tracker.Notify(e)
			case <-ctx.Done():
				return
			}
		}
	})
	wg.Go(func() {
		if err := tracker.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want %v", err, context.Canceled)
		}
	})
	synctest.Wait()
	return tracker, func() { cancel(); wg.Wait(); s.flush() }
}

func addImage(fake *runtimetest.Fake, name string) runtime.Image {
	return fake.AddImage(runtimetest.ImageSpec{ID: "sha256:" + name, Tags: []string{"quay.io/org/" + name + ":1"}})
}

func runContainer(fake *runtimetest.Fake, id, image string) {
	fake.RunPod(runtimetest.PodSpec{Name: "pod-" + id, Containers: []runtimetest.ContainerSpec{{ID: id, Name: id, Image: "sha256:" + image}}})
}

func TestTrackerFollowsContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := runtimetest.NewFake(runtimetest.Options{})
		addImage(fake, "a")
		addImage(fake, "b")
		begin := time.Now()
		tracker, stop := start(t, newStore(), fake, &logBuffer{})
		defer stop()
		if use := tracker.Use("fake", "sha256:a"); !use.FirstSeen.Equal(begin) || !use.LastUsed.IsZero() {
			t.Errorf("Use() before any use = %+v, want first seen %s", use, begin)
		}
		time.Sleep(time.Hour)
		runContainer(fake, "c", "a")
		time.Sleep(3 * time.Hour)
		if use := tracker.Use("fake", "sha256:a"); !use.LastUsed.Equal(time.Now()) {
			t.Errorf("Use() while a container runs = %+v, want now, %s", use, time.Now())
		}
		fake.Exit("c", 0)
		exit := time.Now()
		time.Sleep(5 * time.Hour)
		if use := tracker.Use("fake", "sha256:a"); !use.LastUsed.Equal(exit) || !use.FirstSeen.Equal(begin) {
			t.Errorf("Use() after the exit = %+v, want last used %s", use, exit)
		}
		if use := tracker.Use("fake", "sha256:b"); !use.LastUsed.IsZero() {
			t.Errorf("Use() of what never ran = %+v, want no use", use)
		}
		if use := tracker.Use("other", "sha256:a"); use != (lastused.Use{}) {
			t.Errorf("Use() of another runtime's image = %+v, want nothing", use)
		}
	})
}

func TestTrackerSeesUseThatItsEventsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := runtimetest.NewFake(runtimetest.Options{})
		addImage(fake, "a")
		exit := time.Now()
		fake.RunPod(runtimetest.PodSpec{Name: "p", Containers: []runtimetest.ContainerSpec{{Name: "c", Image: "sha256:a", State: runtime.Exited}}})
		time.Sleep(time.Hour)
		tracker, stop := start(t, newStore(), fake, &logBuffer{})
		defer stop()
		if use := tracker.Use("fake", "sha256:a"); !use.LastUsed.Equal(exit) {
			t.Errorf("Use() = %+v, want the exit before the start, %s", use, exit)
		}
		fake.EndWatches()
		tracker.SetBlind("fake", true)
		time.Sleep(time.Minute)
		runContainer(fake, "d", "a")
		time.Sleep(2 * time.Minute)
		if use := tracker.Use("fake", "sha256:a"); !use.LastUsed.Equal(time.Now()) {
			t.Errorf("Use() without events = %+v, want now, %s", use, time.Now())
		}
		addImage(fake, "b")
		time.Sleep(20 * time.Second)
		runContainer(fake, "e", "b")
		tracker.SetBlind("fake", false) // events before it are lost
		time.Sleep(20 * time.Second)
		if use := tracker.Use("fake", "sha256:b"); !use.LastUsed.Equal(time.Now()) {
			t.Errorf("Use() soon after events came = %+v, want now, %s", use, time.Now())
		}
	})
}

func TestTrackerSurvivesRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, s := runtimetest.NewFake(runtimetest.Options{}), newStore()
		addImage(fake, "a")
		addImage(fake, "b")
		begin := time.Now()
		_, stop := start(t, s, fake, &logBuffer{})
		runContainer(fake, "c", "a")
		time.Sleep(time.Hour)
		fake.Exit("c", 0)
		exit := time.Now()
		runContainer(fake, "d", "b")
		time.Sleep(time.Hour)
		end := time.Now()
		stop()

		// The agent was stopped for a day; both containers and a tag were removed in the meantime.
		for _, p := range mustPods(t, fake) {
			fake.TakePod(p.ID)
		}
		fake.AddImage(runtimetest.ImageSpec{ID: "sha256:new", Tags: []string{"quay.io/org/a:1"}})
		time.Sleep(24 * time.Hour)
		tracker, stop := start(t, s, fake, &logBuffer{})
		defer stop()
		if use := tracker.Use("fake", "sha256:a"); !use.LastUsed.Equal(exit) || !use.FirstSeen.Equal(begin) {
			t.Errorf("Use() of a renamed image after a restart = %+v, want %s, %s", use, begin, exit)
		}
		if use := tracker.Use("fake", "sha256:b"); !use.LastUsed.Equal(end) {
			t.Errorf("Use() of what ran at the end = %+v, want the tracker's end, %s", use, end)
		}
	})
}

func mustPods(t *testing.T, fake *runtimetest.Fake) []runtime.Pod {
	t.Helper()
	pods, err := fake.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func TestTrackerWritesOnlyWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, s := runtimetest.NewFake(runtimetest.Options{}), newStore()
		for i := range 20 {
			addImage(fake, fmt.Sprint(i))
		}
		_, stop := start(t, s, fake, &logBuffer{})
		time.Sleep(24 * time.Hour)
		if writes, entries := s.count(); writes != 1 || entries != 20 {
			t.Errorf("a day without change wrote %d times, %d entries, want once, 20", writes, entries)
		}
		for i := range 10 {
			runContainer(fake, fmt.Sprint("c", i), fmt.Sprint(i))
		}
		time.Sleep(24 * time.Hour)
		if writes, _ := s.count(); writes > 30 {
			t.Errorf("a day with 10 running containers wrote %d times, want about hourly", writes)
		}
		stop()
	})
}

func TestTrackerForgetsWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, s := runtimetest.NewFake(runtimetest.Options{}), newStore()
		img, other := addImage(fake, "a"), addImage(fake, "b")
		tracker, stop := start(t, s, fake, &logBuffer{})
		defer stop()
		time.Sleep(time.Hour)
		if err := errors.Join(fake.RemoveImage(t.Context(), img), fake.RemoveImage(t.Context(), other)); err != nil {
			t.Fatal(err)
		}
		tracker.Forget("fake", "sha256:a")
		again := time.Now()
		addImage(fake, "a")
		time.Sleep(time.Minute)
		if use := tracker.Use("fake", "sha256:a"); use.FirstSeen.Before(again) {
			t.Errorf("Use() of an image that came again = %+v, want it new since %s", use, again)
		}
		time.Sleep(time.Hour)
		if _, entries := s.count(); entries != 1 || tracker.Use("fake", "sha256:b") != (lastused.Use{}) {
			t.Errorf("the store holds %d entries after an image is gone, want 1", entries)
		}
	})
}

func TestTrackerBoundsScansUnderEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := runtimetest.NewFake(runtimetest.Options{})
		addImage(fake, "a")
		_, stop := start(t, newStore(), fake, &logBuffer{})
		defer stop()
		for i := range 600 { // ten new containers per second
			runContainer(fake, fmt.Sprint("c", i), "a")
			time.Sleep(100 * time.Millisecond)
		}
		if got := len(fake.Calls(runtimetest.Images)); got > 15 {
			t.Errorf("a minute of events caused %d scans, want at most one every 5 s", got)
		}
	})
}

func TestTrackerCorrectsTimesInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, s := runtimetest.NewFake(runtimetest.Options{}), newStore()
		addImage(fake, "a")
		_, stop := start(t, s, fake, &logBuffer{})
		stop()
		images, ahead := s.images(), time.Now().AddDate(1, 0, 0)
		for id := range images["fake"] { // as if written with a clock one year ahead
			images["fake"][id] = lastused.Use{FirstSeen: ahead, LastUsed: ahead}
		}
		s.SaveLazily(func() any { return images })
		tracker, stop := start(t, s, fake, &logBuffer{})
		defer stop()
		time.Sleep(30 * time.Minute)
		if use := tracker.Use("fake", "sha256:a"); !use.FirstSeen.After(time.Now()) {
			t.Errorf("Use() soon after the start = %+v, want it untouched: the clock may be wrong", use)
		}
		time.Sleep(2 * time.Hour)
		if use := tracker.Use("fake", "sha256:a"); use.FirstSeen.After(time.Now()) || use.LastUsed.After(time.Now()) {
			t.Errorf("Use() once the clock is steady = %+v, want it not after now, %s", use, time.Now())
		}
	})
}

func TestTrackerReportsARuntimeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, log := runtimetest.NewFake(runtimetest.Options{}), &logBuffer{}
		var scans []error
		tracker, err := lastused.New(lastused.Options{
			Store: newStore(), Runtimes: func() []lastused.Runtime { return []lastused.Runtime{fake} },
			Observe: func(err error) { scans = append(scans, err) }, Log: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		fault := fake.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrUnavailable})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tracker.Run(ctx) }()
		time.Sleep(12 * time.Minute)
		fault.Release()
		time.Sleep(5 * time.Minute)
		cancel()
		<-done
		if len(scans) != 4 || !errors.Is(scans[0], runtime.ErrUnavailable) || scans[3] != nil {
			t.Errorf("scans = %v, want three failures and a success", scans)
		}
		if strings.Count(log.String(), "level=WARN") != 1 || strings.Count(log.String(), "tracked again") != 1 {
			t.Errorf("log = %s, want the failure's begin and end", log.String())
		}
	})
}

func TestARuntimeWithoutEventsCausesNoScansOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		talks, blind := runtimetest.NewFake(runtimetest.Options{Name: "talks"}), runtimetest.NewFake(runtimetest.Options{Name: "blind"})
		tracker, err := lastused.New(lastused.Options{
			Store: newStore(), Runtimes: func() []lastused.Runtime { return []lastused.Runtime{talks, blind} }, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		tracker.SetBlind("blind", true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tracker.Run(ctx) }()
		time.Sleep(time.Hour)
		cancel()
		<-done
		if often, seldom := len(blind.Calls(runtimetest.Images)), len(talks.Calls(runtimetest.Images)); often < 55 || seldom > 15 {
			t.Errorf("in an hour the runtime without events was listed %d times, and the other %d times, want once a minute and once in five", often, seldom)
		}
	})
}

func TestNewRefusesMissingParts(t *testing.T) {
	if _, err := lastused.New(lastused.Options{}); err == nil {
		t.Error("New(nothing) = nil, want an error")
	}
}
