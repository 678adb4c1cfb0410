package pace_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc/pace"
	"hostler.io/hostler/runtime"
)

// untilTheEnd is a removal that hangs.
func untilTheEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestPatienceHalvesWithEachRemovalThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace.Patience
		hang := func(more time.Duration) time.Duration {
			start := time.Now()
			err := p.Within(t.Context(), more, untilTheEnd)
			if !errors.Is(err, runtime.ErrUnavailable) {
				t.Errorf("Within() of one that hangs = %v, want %v", err, runtime.ErrUnavailable)
			}
			return time.Since(start)
		}
		var got []time.Duration
		got = append(got, hang(0))
		slow := func(context.Context) error {
			time.Sleep(59 * time.Second)
			return nil
		}
		if err := p.Within(t.Context(), 0, slow); err != nil {
			t.Errorf("Within() of one that takes 59s = %v, want it waited for", err)
		}
		for range 5 {
			got = append(got, hang(0))
		}
		got = append(got, hang(30*time.Second)) // with the grace period of a container
		want := []time.Duration{120 * time.Second, 60 * time.Second, 30 * time.Second, 15 * time.Second, 10 * time.Second, 10 * time.Second, 40 * time.Second}
		if !slices.Equal(got, want) {
			t.Errorf("Within() waited %v, want %v", got, want)
		}
	})
}

func TestRemovalsThatHangTogetherCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace.Patience
		hang := func() { _ = p.Within(t.Context(), 0, untilTheEnd) }
		var together sync.WaitGroup
		for range 8 {
			together.Go(hang)
		}
		together.Wait()
		start := time.Now()
		if hang(); time.Since(start) != time.Minute {
			t.Errorf("Within() after eight that hung together waited %v, want a minute", time.Since(start))
		}
	})
}

// A cancelled run says nothing about the duration of a removal.
func TestACancelledRunDoesNotShortenTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace.Patience
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Within(ctx, 0, untilTheEnd); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("Within() in a run that ends = %v, want %v alone", err, context.DeadlineExceeded)
		}
		start := time.Now()
		_ = p.Within(t.Context(), 0, untilTheEnd)
		if time.Since(start) != 2*time.Minute {
			t.Errorf("Within() afterwards waited %v, want two minutes", time.Since(start))
		}
	})
}
