package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"hostler.io/hostler/internal/bounded"
)

const (
	// renewJitter is the part of the interval that is added at random.
	renewJitter = 0.04
	// LeaseRenewals is the number of renewals within one duration if the control plane requests the
	// duration. A kubelet uses the same number.
	LeaseRenewals = 4
)

// Renewer is what a LeaseKeeper needs of a Client.
type Renewer interface {
	Node(ctx context.Context, name string) (*corev1.Node, error)
	Lease(ctx context.Context, nodeName string) (*coordinationv1.Lease, error)
	RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// LeasePolicy configures a LeaseKeeper.
type LeasePolicy struct {
	// Node is the name of the Node, and of its Lease.
	Node string
	// Holder is this machine.
	Holder Identity
	// Duration of the Lease, in whole seconds; 40 s by default of the configuration.
	Duration time.Duration
	// Interval is from one renewal to the next, shorter than half of Duration.
	Interval time.Duration
	// Instance names this boot and process, in the Lease.
	Instance string
	// Rebooting reports whether this host has its turn to reboot, or may have it; nil if it never has.
	Rebooting func() bool
	// Takeover takes over the Lease of another live machine, once.
	Takeover bool
	// Watch reports whether another machine is alive; the keeper's own if nil.
	Watch *LeaseWatch
	// Heartbeat, if not nil, receives the result of each attempt.
	Heartbeat func(error)
	// Now is the wall clock; time.Now if nil. The monotonic clock always measures intervals.
	Now func() time.Time
}

// LeaseStats report the state of the Lease.
type LeaseStats struct {
	Lease               *coordinationv1.Lease // as last stored; nil before the first renewal
	LastRenewed         time.Time             // when the last renewal was answered; zero before the first
	Running             time.Time             // when Run started; zero while it does not run
	Renewals            uint64
	ConsecutiveFailures int
	LastError           error  // of the last attempt; nil if that succeeded
	Clone               *Clone // the clone that renews the same Lease; nil if there is none
}

// longestCall bounds a call for a Lease that is valid for long.
const longestCall = 30 * time.Second

// LeaseKeeper keeps the Node's Lease alive. It depends only on the control plane, neither on the
// registration of the Node nor on its status.
type LeaseKeeper struct {
	client   Renewer
	policy   LeasePolicy
	deadline time.Duration // for one call; an attempt has at most four
	log      *slog.Logger
	repaced  chan struct{} // holds one token when the pace has changed

	// Run's goroutine owns what follows.
	lease    *coordinationv1.Lease // as last stored, or to be created; its renewTime never decreases
	clock    clock
	takeover bool
	held     bool // renewed by this process, and not seen to be another machine's since
	clones   cloneDetector
	kept     pace // pace of the last renewal
	stats    LeaseStats
	outage   outage // while renewals fail

	// What other goroutines send to Run, and what Run publishes.
	owner     atomic.Pointer[types.UID]
	wanted    atomic.Pointer[pace]
	published atomic.Pointer[LeaseStats]
}

// outage is a time in which all renewals fail.
type outage struct {
	since   time.Time // the first failure
	expired bool      // whether the Lease has expired, which is logged once
}

// pace is the duration of a Lease, and the interval of its renewals.
type pace struct{ duration, interval time.Duration }

// NewLeaseKeeper returns a keeper that has not renewed anything yet. It returns an error if the
// durations do not fit each other.
func NewLeaseKeeper(client Renewer, policy LeasePolicy, log *slog.Logger) (*LeaseKeeper, error) {
	lease, err := NewLease(policy.Node, policy.Holder, policy.Duration)
	if err != nil {
		return nil, err
	}
	policy.mark(lease)
	if policy.Interval <= 0 || policy.Interval >= policy.Duration/2 {
		return nil, fmt.Errorf("lease of node %q: an interval of %v leaves no time for a retry within %v", policy.Node, policy.Interval, policy.Duration)
	}
	if policy.Now == nil {
		policy.Now = time.Now
	}
	if policy.Rebooting == nil {
		policy.Rebooting = func() bool { return false }
	}
	if policy.Heartbeat == nil {
		policy.Heartbeat = func(error) {}
	}
	if policy.Watch == nil {
		policy.Watch = NewLeaseWatch(nil)
	}
	k := &LeaseKeeper{
		client:   client,
		policy:   policy,
		deadline: min(policy.Duration/5, longestCall),
		log:      log.With("component", "lease"),
		repaced:  make(chan struct{}, 1),
		kept:     policy.pace(),
		lease:    lease,
		clock:    clock{wall: policy.Now},
		takeover: policy.Takeover,
		clones:   cloneDetector{instance: policy.Instance, goneAfter: 3 * policy.Interval},
	}
	k.owner.Store(new(types.UID))
	k.wanted.Store(new(policy.pace()))
	policy.Watch.setDuration(policy.Duration)
	k.publish()
	return k, nil
}

// pace returns the configured pace.
func (p LeasePolicy) pace() pace { return pace{p.Duration, p.Interval} }

// SetPace sets the duration of the Lease, in whole seconds, and renews it four times in that time.
// With the configured duration, the configured interval applies. The next renewal stores a longer
// duration. A shorter one is stored at a random moment within its interval, so that the hosts of a
// fleet do not write at once. SetPace can be called at any time.
func (k *LeaseKeeper) SetPace(duration time.Duration) {
	wants := pace{duration, duration / LeaseRenewals}
	if duration == k.policy.Duration {
		wants = k.policy.pace()
	}
	k.wanted.Store(&wants)
	k.policy.Watch.setDuration(duration)
	select {
	case k.repaced <- struct{}{}:
	default: // Run has not read the earlier token yet
	}
}

// Run renews the Lease at once and then in every interval, until ctx ends, and returns why. After a
// failure it retries at increasing intervals, counted from the start of the attempt. Each call has
// a deadline, and the first one without an answer ends the attempt.
func (k *LeaseKeeper) Run(ctx context.Context) error {
	k.runs(time.Now())
	defer k.runs(time.Time{})
	backoff := k.retry()
	for {
		started, before := time.Now(), k.kept
		err := k.attempt(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		k.note(err)
		k.policy.Heartbeat(err)
		next := k.due(before)
		var identity *IdentityError
		switch {
		case err == nil:
			backoff = k.retry()
		case errors.As(err, &identity):
			// Nothing has failed: check again at the usual pace, and once more at Until.
			if left := time.Until(identity.Until); left > 0 {
				next = min(next, time.Since(started)+left)
			}
		case errors.Is(err, ErrConflict) && k.clones.clone(k.policy.Node) != nil:
			// A retry as after a failure would let two keepers overwrite each other in a tight loop.
		default:
			next = min(next, pause(&backoff, err))
		}
		if err := k.pause(ctx, started.Add(max(next, time.Since(started)+Retry().Duration))); err != nil {
			return err
		}
	}
}

// retry returns the pauses after failures. A long Lease gets longer pauses, so that a large fleet
// does not send requests every few seconds during an outage.
func (k *LeaseKeeper) retry() wait.Backoff {
	backoff := Retry()
	backoff.Cap = max(backoff.Cap, k.kept.interval/LeaseRenewals)
	return backoff
}

// due returns the time until the next renewal. If the interval has just become longer, it returns a
// random part of it. All hosts of the fleet got the new interval within seconds, and their renewals
// must spread.
func (k *LeaseKeeper) due(before pace) time.Duration {
	if longer := k.kept.interval - before.interval; longer > 0 {
		return before.interval + bounded.Random(longer)
	}
	return wait.Jitter(k.kept.interval, renewJitter)
}

// pause waits until the next renewal. If the duration becomes shorter meanwhile, it waits only a
// random part of the new interval. It returns an error if ctx ends.
func (k *LeaseKeeper) pause(ctx context.Context, until time.Time) error {
	for {
		timer := time.NewTimer(time.Until(until))
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
			return nil
		case <-k.repaced:
			timer.Stop()
			if wants := k.wanted.Load(); wants.duration < k.kept.duration {
				if soon := time.Now().Add(bounded.Random(wants.interval)); soon.Before(until) {
					until = soon
				}
			}
		}
	}
}

func (k *LeaseKeeper) runs(since time.Time) {
	k.stats.Running = since
	k.publish()
}

// publish makes the statistics visible to Stats.
func (k *LeaseKeeper) publish() {
	k.published.Store(new(k.stats))
}

// SetOwner makes the Node with that UID the owner of the Lease, starting with the next renewal.
func (k *LeaseKeeper) SetOwner(uid types.UID) {
	k.owner.Store(&uid)
}

// Stats reports the state of the Lease.
func (k *LeaseKeeper) Stats() LeaseStats {
	stats := *k.published.Load()
	stats.Lease = stats.Lease.DeepCopy()
	return stats
}

// Since is the time of the last answered renewal. If there was none since Run began, it is the time
// of the first attempt, so that a host that boots into an outage is noticed. It is zero while Run
// does not run: then another owner has the Lease, or hostler has left.
func (s LeaseStats) Since() time.Time {
	if s.Running.IsZero() || s.Running.After(s.LastRenewed) {
		return s.Running
	}
	return s.LastRenewed
}

// Expired returns an error if the keeper runs and the Lease was not renewed for its duration, or was
// not stored within the configured duration since the start. Then others treat the host as dead.
func (s LeaseStats) Expired(configured time.Duration) error {
	duration := configured
	if s.Lease != nil && s.Lease.Spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*s.Lease.Spec.LeaseDurationSeconds) * time.Second
	}
	since := s.Since()
	if since.IsZero() || time.Since(since) < duration {
		return nil
	}
	text := "lease not renewed for %v, valid for %v"
	if s.LastRenewed.IsZero() {
		text = "lease not renewed since the first attempt %v ago, valid for %v"
	}
	err := fmt.Errorf(text, time.Since(since).Round(time.Second), duration)
	if s.LastError != nil {
		err = fmt.Errorf("%w: %w", err, s.LastError)
	}
	return err
}
