package controlplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

const (
	// longestWatch bounds how long a Lease that nobody renews keeps others away,
	// whatever it says that it is good for. Who renews at a quarter of that, as
	// kubelets do, is seen within the hour for anything up to four.
	longestWatch = LongestLease
	// usualDuration is how long a Lease is watched that does not say how long it is
	// good for: kubelet's default.
	usualDuration = 40 * time.Second
)

// LeaseWatch reports whether who holds a Lease is alive as a leader election does:
// dead is whose Lease was watched, by this process's monotonic clock, and not
// renewed for as long as it is good for. The times in a Lease are by another
// machine's clock and prove nothing. A watch begins again with each start of the
// agent, so that a wait for it is as long as the Lease is good for, counted from the
// first check, and an hour at most. It begins again, too, when the control plane has not
// answered in between: who holds the Lease may not have reached it either, and comes
// back no sooner than this machine. It is safe for concurrent use; nil takes whoever has
// renewed a Lease for alive.
type LeaseWatch struct {
	clock func() time.Time

	mu   sync.Mutex // guards seen
	seen map[string]observation
}

// observation is a Lease as long as it is not renewed.
type observation struct {
	renewal string
	since   time.Time
	renewed bool // it was seen to be renewed
	lapsed  bool // the control plane did not answer since: it counts from the next check on
}

// Observation is what a watch reports of a Lease's holder.
type Observation struct {
	Dead    bool
	Renewed bool      // the Lease was renewed while it was watched
	Until   time.Time // when the holder is dead unless it renews; zero if it is, or nobody watches
}

// NewLeaseWatch returns a watch that has seen nothing yet. It goes by the monotonic
// readings of clock; by those of time.Now if that is nil.
func NewLeaseWatch(clock func() time.Time) *LeaseWatch {
	if clock == nil {
		clock = time.Now
	}
	return &LeaseWatch{clock: clock, seen: map[string]observation{}}
}

// See takes in what was just read of a Lease, nil if there is none, and judges its
// holder. One that was never renewed has no holder who could live.
func (w *LeaseWatch) See(lease *coordinationv1.Lease) Observation {
	if lease == nil || lease.Spec.RenewTime == nil {
		return Observation{Dead: true}
	}
	if w == nil {
		return Observation{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now, renewal := w.clock(), Renewal(lease)
	s, known := w.seen[lease.Name]
	if !known || s.renewal != renewal {
		s = observation{renewal: renewal, since: now, renewed: known}
		w.seen[lease.Name] = s
	}
	if s.lapsed {
		s.since, s.lapsed = now, false
		w.seen[lease.Name] = s
	}
	good := usualDuration
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		good = min(time.Duration(*d)*time.Second, longestWatch)
	}
	if now.Sub(s.since) >= good {
		return Observation{Dead: true, Renewed: s.renewed}
	}
	return Observation{Renewed: s.renewed, Until: s.since.Add(good)}
}

// NoteAnswer takes in how a request to the control plane ended, by whoever looks: nil where
// it was answered.
func (w *LeaseWatch) NoteAnswer(err error) {
	if w == nil || !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, s := range w.seen {
		s.lapsed = true
		w.seen[name] = s
	}
}

// Renewal tells one renewal of a Lease from another. What another client notes on a Lease,
// which changes its resourceVersion, is none.
func Renewal(lease *coordinationv1.Lease) string {
	if lease.Spec.RenewTime == nil {
		return ""
	}
	return fmt.Sprintf("%s %d %v", lease.UID, lease.Spec.RenewTime.UnixMicro(), identityIn(lease.Annotations))
}
