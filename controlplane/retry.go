package controlplane

import (
	"errors"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Retry is how long to wait between attempts on a control plane that does not
// answer: 200 ms, doubling up to 7 s, as kubelet does for Leases, and a random
// fifth more, so that a fleet does not return all at once. It is a value: a
// copy starts again.
func Retry() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: math.MaxInt32, Cap: 7 * time.Second}
}

// pause is how long to wait after err: the next step of the back-off, or what the
// control plane requests if that is longer, up to the back-off's cap, the usual one at
// the least, and its jitter.
func pause(backoff *wait.Backoff, err error) time.Duration {
	next := backoff.Step()
	if busy, ok := errors.AsType[*BusyError](err); ok {
		next = max(next, wait.Jitter(min(busy.After, max(backoff.Cap, Retry().Cap)), Retry().Jitter))
	}
	return next
}
