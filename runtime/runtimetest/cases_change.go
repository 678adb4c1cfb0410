package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
)

func testStart(b *bench) {
	b.run(EndsOnTERM)
	began := b.container().StartedAt
	b.stop(0)
	dead := b.container()
	able := b.driver.Abilities().Starts
	if reported := dead.Restart != runtime.RestartUnknown && dead.Restart != runtime.RestartElsewhere; reported != able {
		b.Errorf("Pods() = a container with Restart %v, want it known: %t", dead.Restart, able)
	}
	if able && (began.IsZero() || !dead.StartedAt.Equal(began)) {
		b.Errorf("Pods() = a run from %v, and from %v once it has ended; want it the same", began, dead.StartedAt)
	}
	starter, is := b.Runtime.(runtime.Starter)
	if !able {
		if is {
			if err := starter.StartContainer(b.ctx, dead); !errors.Is(err, runtime.ErrUnsupported) {
				b.Errorf("StartContainer() = %v, want %v", err, runtime.ErrUnsupported)
			}
		}
		return
	}
	if dead.StartedAt.Before(dead.CreatedAt) || dead.StartedAt.After(dead.FinishedAt) {
		b.Errorf("Pods() = a run from %v to %v of what was created at %v, want it in that order", dead.StartedAt, dead.FinishedAt, dead.CreatedAt)
	}
	for range 2 {
		if err := starter.StartContainer(b.ctx, dead); err != nil {
			b.Fatalf("StartContainer() = %v", err)
		}
		b.eventually("container runs again", func() bool { return b.container().State == runtime.Running })
		if c := b.container(); c.ID != dead.ID || c.StartedAt.Before(dead.FinishedAt) || !c.FinishedAt.IsZero() {
			b.Errorf("container is %+v after its start, want %s running, since then", c, dead.ID)
		}
	}
	b.stop(0)
	if c := b.container(); c.State != runtime.Exited || c.StartedAt.Before(dead.FinishedAt) || c.FinishedAt.Before(c.StartedAt) {
		b.Errorf("container is %v, its run from %v to %v, want it ended, and started after %v", c.State, c.StartedAt, c.FinishedAt, dead.FinishedAt)
	}
	if err := starter.StartContainer(b.ctx, runtime.Container{Runtime: b.Name(), ID: strings.Repeat("0", 64), Name: "gone"}); err == nil {
		b.Errorf("StartContainer() of a missing container = nil, want an error")
	}
}

func testRemoveRunning(b *bench) {
	b.run(EndsOnTERM)
	c := b.container()
	if err := b.RemoveContainer(b.ctx, c); !errors.Is(err, runtime.ErrInUse) {
		b.Errorf("RemoveContainer() of a running one = %v, want %v", err, runtime.ErrInUse)
	}
	if c = b.container(); c.State != runtime.Running {
		b.Errorf("container is %v, want it running still", c.State)
	}
}

func testRemoveDead(b *bench) {
	b.run(EndsOnTERM)
	c := b.container()
	b.stop(0)
	for range 2 {
		if err := b.RemoveContainer(b.ctx, c); err != nil {
			b.Errorf("RemoveContainer() = %v", err)
		}
	}
	b.empty()
}

// empty fails if there is a container, or a pod that should have disappeared with its last
// container.
func (b *bench) empty() {
	b.Helper()
	if able := b.driver.Abilities(); !able.Sandboxes && !able.PodsStay {
		b.none()
	} else if p := b.pod(); len(p.Containers) != 0 {
		b.Errorf("Pods() = %d containers, want none", len(p.Containers))
	}
}

// none fails if there is a pod.
func (b *bench) none() {
	b.Helper()
	if pods, err := b.Pods(b.ctx); err != nil || len(pods) != 0 {
		b.Errorf("Pods() = %v, %v, want none", pods, err)
	}
}

func testRemovePod(b *bench) {
	p := b.run(EndsOnTERM)
	class := runtime.ErrInUse
	if !b.driver.Abilities().Sandboxes {
		class = runtime.ErrUnsupported
	}
	refused := func(what string) {
		b.Helper()
		if err := b.RemovePod(b.ctx, p); !errors.Is(err, class) {
			b.Errorf("RemovePod() of %s = %v, want %v", what, err, class)
		}
		if got := b.pod(); got.ID != p.ID || len(got.Containers) != 1 {
			b.Fatalf("Pods() = %+v, want the pod with its container", got)
		}
	}
	refused("a ready pod")
	if c := b.container(); c.State != runtime.Running {
		b.Errorf("container is %v, want it running still", c.State)
	}
	if err := b.StopPod(b.ctx, p); err != nil {
		b.Fatalf("StopPod() = %v", err)
	}
	refused("a dead pod with a dead container")
	if err := b.RemoveContainer(b.ctx, b.container()); err != nil {
		b.Fatalf("RemoveContainer() = %v", err)
	}
	for range 2 {
		if err := b.RemovePod(b.ctx, p); b.driver.Abilities().Sandboxes && err != nil {
			b.Errorf("RemovePod() = %v", err)
		}
	}
	if b.driver.Abilities().Sandboxes {
		b.none()
	} else {
		b.empty()
	}
}

func testRemoveImage(b *bench) {
	if b.bare() {
		if err := b.RemoveImage(b.ctx, runtime.Image{Runtime: b.Name(), ID: "any"}); !errors.Is(err, runtime.ErrUnsupported) {
			b.Errorf("RemoveImage() = %v, want %v", err, runtime.ErrUnsupported)
		}
		return
	}
	tags := []string{"localhost/hostler/one:1", "localhost/hostler/other:latest"}
	b.driver.AddImage(b, tags...)
	b.driver.AddImage(b, "localhost/hostler/two:1")
	img, ok := b.image(tags[0])
	if !ok {
		b.Fatalf("Images() lacks %s", tags[0])
	}
	for range 2 {
		if err := b.RemoveImage(b.ctx, img); err != nil {
			b.Errorf("RemoveImage() = %v", err)
		}
	}
	for _, tag := range tags {
		if _, ok := b.image(tag); ok {
			b.Errorf("Images() still has %s", tag)
		}
	}
	if _, ok := b.image("localhost/hostler/two:1"); !ok {
		b.Errorf("Images() lost an image that was not removed")
	}
	missing := runtime.Image{Runtime: b.Name(), ID: "sha256:" + strings.Repeat("0", 64)}
	if err := b.RemoveImage(b.ctx, missing); err != nil {
		b.Errorf("RemoveImage() of a missing one = %v", err)
	}
}

func testRemoveImageInUse(b *bench) {
	b.run(EndsOnTERM)
	if b.bare() {
		return // the runtime has no images
	}
	refuses := b.driver.Abilities().RefusesImagesInUse
	for _, when := range []string{"running", "dead"} {
		img, ok := b.image(testImage)
		if !ok {
			if refuses {
				b.Errorf("Images() lacks %s, of which a container is %s", testImage, when)
			}
			return
		}
		if err := b.RemoveImage(b.ctx, img); errors.Is(err, runtime.ErrInUse) != refuses || !refuses && err != nil {
			b.Errorf("RemoveImage() of what a container uses that is %s = %v, want it to refuse: %t", when, err, refuses)
		}
		b.stop(0)
	}
	if c := b.container(); c.State != runtime.Exited {
		b.Errorf("container is %v, want it as it was", c.State)
	}
}

// log collects the events of a Watch.
type log struct {
	mu     sync.Mutex
	events []runtime.Event
	end    chan error
}

func (b *bench) watch(ctx context.Context) *log {
	l := &log{end: make(chan error, 1)}
	events := make(chan runtime.Event)
	go func() {
		l.end <- b.Watch(ctx, events)
		close(events)
	}()
	go func() {
		for e := range events {
			l.mu.Lock()
			l.events = append(l.events, e)
			l.mu.Unlock()
		}
	}()
	return l
}

// has reports whether a matching event has arrived. Its type is t, or Changed if the runtime does
// not know the type. Its object is one of objects, or unknown.
func (l *log) has(t runtime.EventType, objects ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		fits := e.Type == t || e.Type == runtime.Changed
		if fits && (e.ContainerID+e.Image == "" || slices.Contains(objects, e.ContainerID) || slices.Contains(objects, e.Image)) {
			return true
		}
	}
	return false
}

// prime causes an event.
func (b *bench) prime(i int) {
	b.Helper()
	if !b.bare() {
		b.driver.AddImage(b, fmt.Sprintf("localhost/hostler/prime:%d", i))
		return
	}
	name := fmt.Sprintf("prime-%d", i)
	b.driver.RunPod(b, "barn", name, Program{Name: name, Does: EndsOnTERM})
}

// clear removes the containers that prime created.
func (b *bench) clear() {
	b.Helper()
	pods, err := b.Pods(b.ctx)
	if err != nil {
		b.Fatalf("Pods() = %v", err)
	}
	for _, p := range pods {
		if err := errors.Join(b.StopPod(b.ctx, p), b.RemoveContainer(b.ctx, p.Containers[0])); err != nil {
			b.Fatalf("remove %s: %v", p.Name, err)
		}
	}
}

// primed starts a Watch, and returns when it delivers events. Runtimes do not report that, so it
// calls prime until the first event arrives.
func (b *bench) primed(ctx context.Context) *log {
	b.Helper()
	l := b.watch(ctx)
	for i := range 300 { // for five minutes
		b.prime(i)
		wait := time.NewTimer(time.Second)
		tick := time.NewTicker(20 * time.Millisecond)
		for due := false; !due; {
			select {
			case err := <-l.end:
				b.Fatalf("Watch() = %v, want it to continue", err)
			case <-wait.C:
				due = true
			case <-tick.C:
				l.mu.Lock()
				seen := len(l.events) > 0
				l.mu.Unlock()
				if seen {
					wait.Stop()
					tick.Stop()
					b.clear()
					return l
				}
			}
		}
		tick.Stop()
	}
	b.Fatalf("Watch() delivered nothing while images were added")
	return nil
}

func testWatch(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	l := b.primed(ctx)
	expect := func(t runtime.EventType, what string, objects ...string) {
		b.Helper()
		b.eventually("event for "+what+" "+objects[0], func() bool { return l.has(t, objects...) })
	}
	const added = "localhost/hostler/added:1"
	var img runtime.Image
	if !b.bare() {
		b.driver.AddImage(b, added)
		var ok bool
		if img, ok = b.image(added); !ok {
			b.Fatalf("Images() lacks %s", added)
		}
		expect(runtime.ImageAdded, "the new image", added, img.ID)
	}

	c := b.run(EndsOnTERM).Containers[0]
	expect(runtime.ContainerStarted, "the start of", c.ID)
	b.stop(0)
	expect(runtime.ContainerExited, "the end of", c.ID)
	if err := b.RemoveContainer(b.ctx, c); err != nil {
		b.Fatalf("RemoveContainer() = %v", err)
	}
	expect(runtime.ContainerRemoved, "the removal of", c.ID)

	if !b.bare() {
		if err := b.RemoveImage(b.ctx, img); err != nil {
			b.Fatalf("RemoveImage() = %v", err)
		}
		expect(runtime.ImageRemoved, "the removal of", added, img.ID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Runtime != b.Name() {
			b.Errorf("event %+v, want runtime %q", e, b.Name())
		}
	}
}

func testWatchEnds(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	l := b.watch(ctx)
	cancel()
	select {
	case err := <-l.end:
		if !errors.Is(err, context.Canceled) {
			b.Errorf("Watch() = %v, want %v", err, context.Canceled)
		}
	case <-time.After(patience):
		b.Errorf("Watch() has not returned after its context ended")
	}
}

func testCancel(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	_, pods := b.Pods(ctx)
	_, images := b.Images(ctx)
	_, info := b.Info(ctx)
	_, filesystems := b.ImageFilesystems(ctx)
	for what, err := range map[string]error{"Pods": pods, "Images": images, "Info": info, "ImageFilesystems": filesystems} {
		if !errors.Is(err, context.Canceled) {
			b.Errorf("%s() = %v, want %v", what, err, context.Canceled)
		}
	}
}

func testCancelStop(b *bench) {
	b.run(IgnoresTERM)
	c := b.container()
	var err error
	// On a slow machine, the first deadlines end before the runtime has sent the signal.
	for deadline := 300 * time.Millisecond; deadline < patience; deadline *= 4 {
		ctx, cancel := context.WithTimeout(b.ctx, deadline)
		start := time.Now()
		err = b.StopContainer(ctx, c, 2*patience)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > patience {
			b.Errorf("StopContainer() = %v after %v, want %v at once", err, time.Since(start), context.DeadlineExceeded)
		}
		if !errors.Is(err, runtime.ErrUnavailable) {
			break
		}
	}
	if errors.Is(err, runtime.ErrUnavailable) {
		b.Errorf("StopContainer() = %v, want no mention of %q: only the caller's context ended", err, runtime.ErrUnavailable)
	}
	if c = b.container(); c.State != runtime.Running {
		b.Errorf("container is %v, want it running: its grace period has not expired", c.State)
	}
}

func testHang(b *bench) {
	if b.bare() {
		return // there is no server that could hang
	}
	b.eventually("answer before the hang", func() bool { _, err := b.Pods(b.ctx); return err == nil })
	resume := b.driver.Hang(b)
	defer resume()
	start := time.Now()
	if _, err := b.Pods(b.ctx); !errors.Is(err, runtime.ErrUnavailable) {
		b.Errorf("Pods() of a hung runtime = %v, want %v", err, runtime.ErrUnavailable)
	}
	if took := time.Since(start); took > patience {
		b.Errorf("Pods() of a hung runtime took %v, want a deadline of its own", took)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 200*time.Millisecond)
	defer cancel()
	start = time.Now()
	_, err := b.Images(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > patience/2 {
		b.Errorf("Images() = %v after %v, want %v at once", err, time.Since(start), context.DeadlineExceeded)
	}
	resume()
	b.eventually("answer after the hang", func() bool { _, err := b.Pods(b.ctx); return err == nil })
}

func testCrash(b *bench) {
	able := b.driver.Abilities().Starts
	watching, stopWatching := context.WithCancel(b.ctx)
	defer stopWatching()
	var events *log
	if able {
		events = b.primed(watching) // the adapter may answer from its cache while it watches
	}
	b.run(EndsOnTERM)
	before := b.container()
	restart := b.driver.Crash(b)
	if b.bare() {
		b.none()
		if info, err := b.Info(b.ctx); err != nil || !info.Ready {
			b.Errorf("Info() without any container = %+v, %v, want it ready", info, err)
		}
		restart()
		if after := b.container(); after.ID != before.ID || after.State != runtime.Running {
			b.Errorf("Pods() once it runs again = %+v, want %+v", after, before)
		}
		return
	}
	// The crash may take effect a moment later.
	b.eventually("failure after the crash", func() bool { _, err := b.Images(b.ctx); return err != nil })
	if _, err := b.Images(b.ctx); !errors.Is(err, runtime.ErrUnavailable) {
		b.Errorf("Images() of a crashed runtime = %v, want %v", err, runtime.ErrUnavailable)
	}
	if _, err := b.Info(b.ctx); !errors.Is(err, runtime.ErrUnavailable) {
		b.Errorf("Info() of a crashed runtime = %v, want %v", err, runtime.ErrUnavailable)
	}
	restart()
	b.eventually("answer after the crash", func() bool { _, err := b.Pods(b.ctx); return err == nil })
	after := b.container()
	if after.ID != before.ID || after.ImageID != before.ImageID {
		b.Errorf("Pods() after the crash = %+v, want %+v", after, before)
	}
	if !able {
		return
	}
	stopWatching() // unless the crash has ended it
	<-events.end
	b.driver.(Restarter).Rerun(b, after.ID)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	b.watch(ctx)
	b.eventually("a start that no event reported", func() bool {
		c := b.container()
		return c.State == runtime.Running && c.StartedAt.After(after.StartedAt)
	})
}

func testConcurrent(b *bench) {
	want := len(b.run(EndsAtOnce, EndsOnTERM).Containers)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if pods, err := b.Pods(b.ctx); err != nil || len(pods) != 1 || len(pods[0].Containers) != want {
					b.Errorf("Pods() = %v, %v, want one pod with %d containers", pods, err, want)
				}
				if _, err := b.Images(b.ctx); err != nil {
					b.Errorf("Images() = %v", err)
				}
				if _, err := b.Info(b.ctx); err != nil {
					b.Errorf("Info() = %v", err)
				}
			}
		})
	}
	wg.Wait()
}
