package controlplane

import (
	"errors"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Retry is the back-off between attempts while a control plane does not answer: 200 ms, doubling up
// to 7 s, as kubelet does for Leases. Up to a fifth is added at random, so that the hosts of a
// fleet do not all retry at once. It is a value: each copy starts with the first step.
func Retry() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: math.MaxInt32, Cap: 7 * time.Second}
}

// pause returns how long to wait after err: the next step of the back-off, or the wait that the
// control plane requests if that is longer. A requested wait is limited by the larger cap of
// backoff and Retry, and gets jitter.
func pause(backoff *wait.Backoff, err error) time.Duration {
	next := backoff.Step()
	if busy, ok := errors.AsType[*BusyError](err); ok {
		next = max(next, wait.Jitter(min(busy.After, max(backoff.Cap, Retry().Cap)), Retry().Jitter))
	}
	return next
}
