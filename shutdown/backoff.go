package shutdown

import "time"

// backoff is the pause between attempts: from 200 ms doubling to 30 s.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, 200*time.Millisecond), 30*time.Second)
	return b.last
}

func (b *backoff) reset() { b.last = 0 }
