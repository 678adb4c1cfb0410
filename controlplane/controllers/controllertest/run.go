// Package controllertest runs controllers in tests, in a bubble of testing/synctest.
package controllertest

import (
	"context"
	"testing"
	"time"
)

// Run runs loops until the test ends or stop is called. stop waits until the loops have returned. A
// loop that returns earlier is restarted after 100 ms, as a server does when the store fails.
func Run(t testing.TB, loops ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	for _, run := range loops {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				_ = run(ctx)
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		for range loops {
			<-ended
		}
	}
	t.Cleanup(stop)
	return stop
}
