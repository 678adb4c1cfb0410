package bounded_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/bounded"
)

var errLate = errors.New("late")

// measured runs a wait in a synctest bubble, with a context that ends after a second, and returns
// how long it took.
func measured(t *testing.T, wait func(ctx context.Context) error) (took time.Duration, err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errLate)
		defer cancel()
		began := time.Now()
		err = wait(ctx)
		took = time.Since(began)
		time.Sleep(2 * time.Hour) // lets abandoned calls return
	})
	return took, err
}

func TestWaitsEndWithTheirContext(t *testing.T) {
	errOwn := errors.New("its own")
	call := func(d time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			return bounded.Call(ctx, func() error { time.Sleep(d); return errOwn })
		}
	}
	sleep := func(d time.Duration) func(context.Context) error {
		return func(ctx context.Context) error { return bounded.Sleep(ctx, d) }
	}
	for name, tt := range map[string]struct {
		wait func(context.Context) error
		took time.Duration
		err  error
	}{
		"a call that ends in time":  {call(time.Millisecond), time.Millisecond, errOwn},
		"a call that takes longer":  {call(time.Hour), time.Second, errLate},
		"a sleep that ends in time": {sleep(time.Millisecond), time.Millisecond, nil},
		"a sleep that takes longer": {sleep(time.Hour), time.Second, errLate},
	} {
		if took, err := measured(t, tt.wait); took != tt.took || err != tt.err {
			t.Errorf("%s took %v and returned %v, want %v and %v", name, took, err, tt.took, tt.err)
		}
	}
}
