package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Leases observes the Leases of a fleet in the store: a watch counts their renewals and sees their
// deletion. It is not part of the fleet.
type Leases struct {
	prefix string
	ended  chan struct{} // closed when the watch has ended
	news   chan struct{} // holds one token after an event

	mu    sync.Mutex // guards the fields below
	known map[string]*kept
	gone  []string
	err   error // why the watch ended
}

// kept is the state of one Lease.
type kept struct {
	last     time.Time     // time of the last renewal
	longest  time.Duration // between two renewals
	renewals int
}

// Kept shows how the Leases of a fleet were renewed.
type Kept struct {
	Leases   int             // number of existing Leases
	Renewals int             // of all Leases
	Least    int             // renewals of the Lease with the fewest
	Gaps     []time.Duration // longest gap of each Lease, including the present one; sorted
	Gone     []string        // names of the Leases that were deleted since the watch began
}

// Watch watches the keys below prefix, which has to end in a slash, from now on until ctx ends.
func Watch(ctx context.Context, store *clientv3.Client, prefix string) (*Leases, error) {
	answers := store.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	select {
	case answer, open := <-answers:
		if !open || answer.Err() != nil {
			return nil, fmt.Errorf("watch %s: it ended at once: %w", prefix, answer.Err())
		}
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("watch %s: the store does not answer", prefix)
	}
	l := &Leases{prefix: prefix, ended: make(chan struct{}), news: make(chan struct{}, 1), known: map[string]*kept{}}
	go l.follow(answers)
	return l, nil
}

func (l *Leases) follow(answers clientv3.WatchChan) {
	defer close(l.ended)
	for answer := range answers {
		l.take(answer, time.Now())
		select {
		case l.news <- struct{}{}:
		default: // an earlier token is still in the channel
		}
	}
}

// take records the events of a watch.
func (l *Leases) take(answer clientv3.WatchResponse, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := answer.Err(); err != nil {
		l.err = err
	}
	for _, event := range answer.Events {
		name := strings.TrimPrefix(string(event.Kv.Key), l.prefix)
		if event.Type == clientv3.EventTypeDelete {
			l.gone = append(l.gone, name)
			delete(l.known, name)
			continue
		}
		k := l.known[name]
		if k == nil {
			k = &kept{last: at}
			l.known[name] = k
		}
		k.longest = max(k.longest, at.Sub(k.last))
		k.last = at
		k.renewals++
	}
}

// Begin restarts the counts of renewals and gaps. A present gap counts in full.
func (l *Leases) Begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.known {
		k.longest, k.renewals = 0, 0
	}
}

// Kept returns how the Leases were renewed since Begin. If the watch has ended, it returns an
// error, because later events are unknown.
func (l *Leases) Kept() (Kept, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.ended:
		return Kept{}, fmt.Errorf("watch %s: it has ended: %w", l.prefix, l.err)
	default:
	}
	now := time.Now()
	sum := Kept{Leases: len(l.known), Gone: slices.Clone(l.gone)}
	for _, k := range l.known {
		if sum.Gaps == nil || k.renewals < sum.Least {
			sum.Least = k.renewals
		}
		sum.Renewals += k.renewals
		sum.Gaps = append(sum.Gaps, max(k.longest, now.Sub(k.last)))
	}
	slices.Sort(sum.Gaps)
	return sum, nil
}

// Await waits until wanted returns true.
func (l *Leases) Await(ctx context.Context, wanted func(Kept) bool) error {
	for {
		now, err := l.Kept()
		if err != nil || wanted(now) {
			return err
		}
		select {
		case <-l.news:
		case <-l.ended:
		case <-ctx.Done():
			return fmt.Errorf("the leases are not as wanted: %d are there, %d are gone, the least renewed one was renewed %d times: %w", now.Leases, len(now.Gone), now.Least, context.Cause(ctx))
		}
	}
}
