package executor

import "time"

// firstRetry and lastRetry bound how long an object waits after a call that failed.
const firstRetry, lastRetry = time.Second, time.Minute

// Backoff counts calls that have failed one after the other.
type Backoff int

// Next is the backoff after one more.
func (b Backoff) Next() Backoff { return b + 1 }

// Pause is how long to wait for the next call: twice as long each time, up to a minute.
func (b Backoff) Pause() time.Duration {
	if b > 6 { // 64 s
		return lastRetry
	}
	return min(firstRetry<<max(b-1, 0), lastRetry)
}
