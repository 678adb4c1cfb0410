package discovery

import (
	"context"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
)

const (
	// podsGather is how long a change is waited with: pods come with several events,
	// and in swarms.
	podsGather = time.Second
	// podsInterval is how often pods are listed where all runtimes report a change.
	podsInterval = time.Minute
	// podsPause is how many times as long as a list took nothing is listed again, up to
	// Interval: where pods come and go without end, that is not what the host is there for.
	podsPause = 10
)

// PodWatch lists pods soon after a change, and regularly, for users that need the list when a
// runtime hangs or after a power cut.
type PodWatch struct {
	pods    func(context.Context) ([]runtime.Pod, error)
	observe func([]runtime.Pod)
	change  func()
	changed chan struct{} // capacity 1

	mu    sync.Mutex
	blind map[string]bool // guarded by mu: runtimes that send no events now
}

// NewPodWatch returns a PodWatch that lists with pods. It calls observe with each list, and change
// as soon as that list is outdated.
func NewPodWatch(pods func(context.Context) ([]runtime.Pod, error), observe func([]runtime.Pod), change func()) *PodWatch {
	return &PodWatch{pods: pods, observe: observe, change: change, changed: make(chan struct{}, 1), blind: map[string]bool{}}
}

// Notice takes in an event of a runtime. It never blocks.
func (w *PodWatch) Notice(e runtime.Event) {
	switch e.Type {
	case runtime.ImageAdded, runtime.ImageRemoved, runtime.ContainerCreated: // nothing runs for it
		return
	}
	w.trigger()
}

// SetBlind says whether a runtime sends no events now. No event reports what happened before its
// stream opened, or after it broke: pods are listed then. A stream that does not open has them
// listed once, however often it is tried.
func (w *PodWatch) SetBlind(name string, blind bool) {
	w.mu.Lock()
	missed := !blind || !w.blind[name]
	if blind {
		w.blind[name] = true
	} else {
		delete(w.blind, name)
	}
	w.mu.Unlock()
	if missed {
		w.trigger()
	}
}

func (w *PodWatch) trigger() {
	select {
	case w.changed <- struct{}{}:
	default: // one is pending
	}
	w.change() // last: the list that is being observed does not have it
}

// Run lists until ctx ends.
func (w *PodWatch) Run(ctx context.Context) error {
	failed := 0 // lists in a row
	for {
		began := time.Now()
		pods, err := w.pods(ctx)
		if failed++; err == nil {
			failed = 0
		}
		rest := max(podsGather, min(podsPause*time.Since(began), Interval))
		if err == nil {
			w.observe(pods)
			if len(w.changed) > 0 { // while it was being made
				w.change()
			}
		}
		select {
		case <-w.changed:
		case <-time.After(w.interval(failed)):
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// interval is the time to the next list if no event reports a change, after some failed lists in a
// row. A runtime that fails for long does not have the others listed more often: its events report
// when it is back.
func (w *PodWatch) interval(failed int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case failed > 0:
		return min(podsInterval, Interval<<min(failed-1, 8))
	case len(w.blind) > 0:
		return Interval
	}
	return podsInterval
}
