package shutdown

import "time"

// backoff is the pause between attempts: from 200 ms, doubling.
type backoff struct{ last time.Duration }

// next returns the next pause, at most longest.
func (b *backoff) next(longest time.Duration) time.Duration {
	b.last = min(max(2*b.last, 200*time.Millisecond), longest)
	return b.last
}

func (b *backoff) reset() { b.last = 0 }
