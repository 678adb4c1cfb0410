package executor

import "time"

// firstRetry and lastRetry are the shortest and the longest pause after a failed call.
const firstRetry, lastRetry = time.Second, time.Minute

// Backoff is the number of consecutive failed calls.
type Backoff int

// Next returns the Backoff after one more failure.
func (b Backoff) Next() Backoff { return b + 1 }

// Pause returns how long to wait before the next call. It doubles with each failure, up to a
// minute.
func (b Backoff) Pause() time.Duration {
	if b > 6 { // 64 s
		return lastRetry
	}
	return min(firstRetry<<max(b-1, 0), lastRetry)
}
