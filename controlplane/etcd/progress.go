package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// stalledAfter is how long a watch may not reach a revision that the majority has.
const stalledAfter = 15 * time.Second

// errStalled is why a Follow ends whose watch reports nothing although the store has changed.
var errStalled = fmt.Errorf("the watch has reported nothing for %v, but the store has changed: %w", stalledAfter, controlplane.ErrNoAnswer)

// newest is the highest revision that the majority has confirmed.
type newest struct {
	mu sync.Mutex // guards at
	at position
}

// pass records the answer to a request. before is the result of get before the request was sent. pass
// returns ErrRestored if the cluster is another one, or was at a higher revision before.
func (n *newest) pass(before, answer position) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	restored := before.cluster != 0 && (answer.cluster != before.cluster || answer.revision < before.revision || answer.revision-before.revision > store.RestoreJump)
	if restored || answer.cluster != n.at.cluster || answer.revision > n.at.revision {
		n.at = answer
	}
	if restored {
		return store.ErrRestored
	}
	return nil
}

func (n *newest) get() position {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at
}

// Ping reads the revision of the store, which the majority has to confirm.
func (f *Fleet) Ping(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ping %s: %w", f.election.endpoint(), context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTime, controlplane.ErrNoAnswer)
	defer cancel()
	before := f.newest.get()
	at, err := f.revision(ctx, "ping", f.folder(store.Nodes))
	if err != nil {
		return err
	}
	if err := f.newest.pass(before, at); err != nil {
		return fmt.Errorf("ping %s: %w", f.election.endpoint(), err)
	}
	return nil
}

// revision returns the current position of the store, confirmed by the majority. It counts the keys
// with a name that no object has, over the connection of elections.
func (f *Fleet) revision(ctx context.Context, operation, folder string) (position, error) {
	at := position{}
	err := f.election.call(ctx, call{operation: operation, object: f.election.endpoint(), right: "read", path: folder, all: f.rights, role: serverRole}, func(ctx context.Context, c *conn) error {
		answer, err := c.kv.Get(ctx, folder, clientv3.WithCountOnly())
		if err == nil {
			at = position{answer.Header.ClusterId, answer.Header.Revision}
		}
		return err
	})
	return at, err
}

// progress proves how recent the reports of a watch are. It reads the revision of the store, and
// then waits until the watch has reached it. The goroutine of the Follow owns it.
type progress struct {
	follow  following
	answers chan proof
	asking  bool
	waits   *proof    // revision that the watch has not reached yet; nil if it has reached all
	rounds  int       // progress reports since waits
	reached position  // of the watch
	since   time.Time // when waits was answered
}

// proof is the position that the store had after a time.
type proof struct {
	asked  time.Time
	before int64 // revision that the watch had reported before
	at     position
	err    error
}

// newProgress returns the progress of a watch that begins after a list at a position.
func (f following) newProgress(list position) *progress {
	return &progress{follow: f, answers: make(chan proof, 1), reached: list}
}

// ask reads the revision of the store, unless such a read is in progress, and requests a progress
// report if the watch has not reached an earlier one.
func (p *progress) ask(ctx context.Context, w *watching, now time.Time) error {
	if p.waits != nil {
		if now.Sub(p.since) > stalledAfter {
			return errStalled
		}
		w.requestProgress()
		return nil
	}
	if p.asking {
		return nil
	}
	p.asking = true
	before := w.at.revision
	go func() {
		ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, controlplane.ErrNoAnswer)
		defer cancel()
		asked := time.Now()
		at, err := p.follow.fleet.revision(ctx, "follow", p.follow.folder)
		p.answers <- proof{asked, before, at, err}
	}()
	return nil
}

// answer takes the revision that was read.
func (p *progress) answer(answer proof, w *watching, now time.Time) error {
	p.asking = false
	switch {
	case answer.err != nil: // its caller has no facts meanwhile
		return nil
	case answer.at.cluster != p.reached.cluster || answer.at.revision < answer.before: // a backup was restored
		return errRestartWatch
	}
	p.waits, p.rounds, p.since = &answer, 0, now
	if !p.confirm() {
		w.requestProgress()
	}
	return nil
}

// pass takes an answer of the watch.
func (p *progress) pass(answer *etcdserverpb.WatchResponse) {
	revision := reached(answer)
	if revision == 0 {
		return
	}
	// etcd before 3.4.25 and 3.5.8 may report progress shortly before the changes up to it: the second
	// report counts.
	if len(answer.Events) == 0 {
		if p.waits == nil || revision < p.waits.at.revision {
			return
		}
		if p.rounds++; p.rounds < 2 {
			return
		}
	}
	p.reached.revision = max(p.reached.revision, revision)
	p.confirm()
}

// confirm confirms the revision that the watch has reached. It reports whether none is waited for
// any more.
func (p *progress) confirm() bool {
	if p.waits == nil {
		return true
	}
	if p.reached.revision < p.waits.at.revision {
		return false
	}
	store.Confirmed(p.follow.to, p.waits.asked)
	p.waits = nil
	return true
}

// requestProgress requests a report of the revision that the watch has reached.
func (w *watching) requestProgress() {
	// Recv returns the error of a failed Send.
	_ = w.stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}})
}
