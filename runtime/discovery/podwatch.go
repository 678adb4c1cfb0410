package discovery

import (
	"context"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
)

const (
	// podsGather is the delay after a change. A pod causes several events, and pods often change
	// together.
	podsGather = time.Second
	// podsInterval is the interval of lists while all runtimes send events.
	podsInterval = time.Minute
	// podsPause times the duration of a list is the pause after it, up to Interval. It limits the
	// load if pods change all the time.
	podsPause = 10
)

// PodWatch lists pods soon after a change, and regularly. Its users need a list if a runtime hangs,
// or after a power cut.
type PodWatch struct {
	pods    func(context.Context) ([]runtime.Pod, error)
	observe func([]runtime.Pod)
	change  func()
	changed chan struct{} // capacity 1

	mu    sync.Mutex
	blind map[string]bool // guarded by mu: runtimes without an open event stream
}

// NewPodWatch returns a PodWatch that lists with pods. It calls observe with each list, and change
// as soon as that list is outdated.
func NewPodWatch(pods func(context.Context) ([]runtime.Pod, error), observe func([]runtime.Pod), change func()) *PodWatch {
	return &PodWatch{pods: pods, observe: observe, change: change, changed: make(chan struct{}, 1), blind: map[string]bool{}}
}

// Notice receives an event of a runtime. It never blocks.
func (w *PodWatch) Notice(e runtime.Event) {
	switch e.Type {
	case runtime.ImageAdded, runtime.ImageRemoved, runtime.ContainerCreated: // does not change what runs
		return
	}
	w.trigger()
}

// SetBlind sets whether a runtime has no open event stream. Events before its stream opened or
// after it ended are lost, so both cause a list. A stream that fails to open repeatedly causes only
// one list.
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
	w.change() // called last: the list that is being observed lacks the change
}

// Run lists pods until ctx ends.
func (w *PodWatch) Run(ctx context.Context) error {
	failed := 0 // consecutive failed lists
	for {
		began := time.Now()
		pods, err := w.pods(ctx)
		if failed++; err == nil {
			failed = 0
		}
		rest := max(podsGather, min(podsPause*time.Since(began), Interval))
		if err == nil {
			w.observe(pods)
			if len(w.changed) > 0 { // changed while the list was made
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

// interval returns the time to the next list if there is no event. failed is the number of
// consecutive failed lists. The interval grows with it, because a runtime that is back is reported
// by its event stream.
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
