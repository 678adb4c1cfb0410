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
	// longestWatch limits how long a Lease is watched, whatever its duration. A holder that renews
	// every quarter of the duration, as kubelets do, renews within that time for durations up to four
	// hours.
	longestWatch = LongestLease
	// DefaultLease is the duration of a Lease that names none. Kubelets use the same duration. It is
	// also the shortest duration that a server chooses for all hosts.
	DefaultLease = 40 * time.Second
)

// LeaseWatch decides whether the holder of a Lease is alive, as a leader election does. The holder
// is dead if this process watched the Lease for its whole duration, by its monotonic clock, and saw
// no renewal. Times in the Lease come from another clock and prove nothing.
//
// A watch starts with the first check of this process and takes an hour at most. It starts again if
// the control plane did not answer in between, since the holder may not have reached it either.
// LeaseWatch is safe for concurrent use. A nil LeaseWatch treats every holder that has ever renewed
// a Lease as alive.
type LeaseWatch struct {
	clock func() time.Time

	mu       sync.Mutex // guards the fields below
	seen     map[string]observation
	duration time.Duration // of this host's Lease, if a keeper uses the watch
	lost     bool          // this process had the Node before, as RegisterOptions.Lost
}

// observation records a Lease since its last renewal.
type observation struct {
	renewal string
	since   time.Time
	renewed bool // a renewal was seen
	lapsed  bool // the control plane did not answer: the watch starts again at the next check
}

// Observation is what a watch reports of a Lease's holder.
type Observation struct {
	Dead    bool
	Renewed bool      // the Lease was renewed while it was watched
	Until   time.Time // when the holder is dead unless it renews; zero if it is dead already, or if there is no watch
}

// NewLeaseWatch returns a watch. It uses the monotonic readings of clock, or of time.Now if that is
// nil.
func NewLeaseWatch(clock func() time.Time) *LeaseWatch {
	if clock == nil {
		clock = time.Now
	}
	return &LeaseWatch{clock: clock, seen: map[string]observation{}}
}

// See records a Lease that was just read, nil if there is none, and judges its holder. If the Lease
// was never renewed, its holder counts as dead.
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
	delete(w.seen, standInOf(lease.Name)) // the Lease is not missing
	s, known := w.seen[lease.Name]
	if !known || s.renewal != renewal {
		s = observation{renewal: renewal, since: now, renewed: known}
		w.seen[lease.Name] = s
	}
	if s.lapsed {
		s.since, s.lapsed = now, false
		w.seen[lease.Name] = s
	}
	good := DefaultLease
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		good = min(time.Duration(*d)*time.Second, longestWatch)
	}
	if now.Sub(s.since) >= good {
		return Observation{Dead: true, Renewed: s.renewed}
	}
	return Observation{Renewed: s.renewed, Until: s.since.Add(good)}
}

// setDuration sets the duration of this host's Lease.
func (w *LeaseWatch) setDuration(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.duration = d
}

// setLost records whether this process had the Node before.
func (w *LeaseWatch) setLost(lost bool) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = lost
}

// isLost reports what setLost recorded.
func (w *LeaseWatch) isLost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// missing returns the duration of a Lease that is missing: that of this host's, since a control plane
// can request one duration from all hosts.
func (w *LeaseWatch) missing() time.Duration {
	if w == nil {
		return DefaultLease
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(DefaultLease, w.duration)
}

// NoteAnswer records the result of any request to the control plane: nil if it was answered.
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

// Renewal identifies one renewal of a Lease. It ignores other changes, such as annotations of other
// clients.
func Renewal(lease *coordinationv1.Lease) string {
	if lease.Spec.RenewTime == nil {
		return ""
	}
	return fmt.Sprintf("%s %d %v", lease.UID, lease.Spec.RenewTime.UnixMicro(), identityIn(lease.Annotations))
}
