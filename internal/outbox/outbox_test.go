package outbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/outbox"
)

// A receiver that hangs does not block senders. It gets the values that fitted, in order, with the
// number of dropped values.
func TestAReceiverThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		var missing []uint64
		reads := make(chan struct{})
		box := outbox.New(3, func(value int, lost uint64) {
			<-reads
			got, missing = append(got, value), append(missing, lost)
		})
		box.Put(0)
		synctest.Wait() // until the first value is being delivered
		for i := range 9 {
			box.Put(i + 1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := box.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close() of one that hangs = %v, want the deadline", err)
		}
		close(reads)
		synctest.Wait()
		if want := []int{0, 1, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
		if want := []uint64{0, 6, 0, 0}; !slices.Equal(missing, want) {
			t.Errorf("lost before each: %v, want %v", missing, want)
		}
	})
}

func TestCloseDeliversWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := 0
		box := outbox.New(100, func(int, uint64) { time.Sleep(time.Millisecond); count++ })
		for i := range 100 {
			box.Put(i)
		}
		if err := box.Close(t.Context()); err != nil || count != 100 {
			t.Errorf("Close() = %v after %d values, want none and 100", err, count)
		}
		for range 200 {
			box.Put(0) // a loop may log after the log has closed; it must not block
		}
	})
}
