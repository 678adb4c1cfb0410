package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
)

// Watch hands every runtime's events to receive until ctx ends, and tells blind
// when a runtime's stream opens and ends. A stream that breaks is opened again; a
// runtime without one is left to those who poll.
func (r *Runtimes) Watch(ctx context.Context, receive func(runtime.Event), blind func(runtime string, blind bool)) error {
	watched, lost := map[string]bool{}, map[string]bool{}
	events := make(chan runtime.Event, 64)
	ended := make(chan string)
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	var streams sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer streams.Wait()
	defer cancel()
	start := func() {
		for name := range lost {
			if delete(lost, name); !r.member(name) {
				blind(name, false) // it is let go: nobody waits for its events
			}
		}
		for _, m := range r.set.Members() {
			if watched[m.Name()] {
				continue
			}
			watched[m.Name()] = true
			streams.Go(func() {
				blind(m.Name(), false)
				err := m.Watch(ctx, events)
				blind(m.Name(), true)
				r.log.Debug("event stream ended", "runtime", m.Name(), "error", err)
				if errors.Is(err, runtime.ErrUnsupported) {
					<-ctx.Done() // asking again would not help
				}
				select {
				case ended <- m.Name():
				case <-ctx.Done():
				}
			})
		}
	}
	for start(); ; {
		select {
		case e := <-events:
			receive(e)
		case name := <-ended:
			delete(watched, name) // opened again at the next tick
			lost[name] = true
		case <-r.found:
			start()
		case <-tick.C:
			start()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
