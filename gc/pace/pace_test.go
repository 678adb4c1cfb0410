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

// crew counts parallel calls.
type crew struct {
	mu        sync.Mutex
	now, most int
}

func (c *crew) work(takes time.Duration) {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	time.Sleep(takes)
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
}

func TestEach(t *testing.T) {
	const each = 10 * time.Millisecond
	list := make([]int, 1000)
	for i := range list {
		list[i] = i
	}
	tests := []struct {
		name    string
		try     func(i int) error
		enough  int // done returns false after this many
		cancel  int // cancel after this many
		left    [2]int
		most    int
		slowest time.Duration
	}{
		{name: "as many at once as go with ease", most: 4, slowest: 1000 * each / 3},
		{name: "failures do not end it, and do not make it faster", try: func(int) error { return errors.New("busy") }, most: 1, slowest: 1001 * each},
		{name: "refusals alone do not make it faster", try: func(int) error { return runtime.ErrInUse }, most: 1, slowest: 1001 * each},
		{name: "no reason to continue", enough: 100, left: [2]int{890, 900}, most: 4, slowest: 100 * each},
		{name: "cancelled", cancel: 100, left: [2]int{890, 900}, most: 4, slowest: 100 * each},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var c crew
				var done []int
				start := time.Now()
				left := pace.Each(ctx, list, func(i int) error {
					if c.work(each); tt.try != nil {
						return tt.try(i)
					}
					return nil
				}, func(i int, _ error) bool {
					if done = append(done, i); len(done) == tt.cancel {
						cancel()
					}
					return len(done) != tt.enough
				})
				if left < tt.left[0] || left > tt.left[1] || len(done)+left != len(list) {
					t.Errorf("Each() did %d and left %d, want %v left", len(done), left, tt.left)
				}
				if slices.Sort(done); len(done) > 0 && done[len(done)-1] != len(done)-1 {
					t.Errorf("Each() did %d last, want the first %d of the list", done[len(done)-1], len(done))
				}
				if took := time.Since(start); c.most != tt.most || took > tt.slowest {
					t.Errorf("Each() took %v with %d at once, want %v and %d", took, c.most, tt.slowest, tt.most)
				}
			})
		})
	}
}
