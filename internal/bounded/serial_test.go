package bounded_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/bounded"
)

// The function hangs during ten calls. A call after that must not return the result of an earlier one.
func TestCallsThatHangDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		hangs, errEarlier := make(chan struct{}), errors.New("of the first call")
		s := bounded.NewSerial(func() error {
			if calls.Add(1) == 1 {
				<-hangs
				return errEarlier
			}
			return nil
		})
		for range 10 {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errLate)
			if err := s.Call(ctx); !errors.Is(err, errLate) {
				t.Errorf("Call() = %v, want that it is late", err)
			}
			cancel()
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls run, want one", n)
		}
		close(hangs)
		synctest.Wait()
		if err := s.Call(t.Context()); err != nil || calls.Load() != 2 {
			t.Errorf("Call() = %v after %d calls, want the result of a second one", err, calls.Load())
		}
	})
}
