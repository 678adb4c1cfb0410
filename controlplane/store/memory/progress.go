package memory

import (
	"cmp"
	"context"
	"time"

	"hostler.io/hostler/controlplane/store"
)

// progress confirms to a Follower what it has received, as the stores of the server role do: it reads
// the latest revision, and waits until the watch has reached it. The goroutine of the Follow owns it.
type progress struct {
	store  *Store
	watch  *watch
	to     store.Follower
	ticker *time.Ticker
	proofs chan proof
	asking bool
	waits  *proof // nil if the watch has reached all
}

// proof is the revision that the store had after a time.
type proof struct {
	asked    time.Time
	revision int64
	lists    int
	err      error
}

func newProgress(s *Store, w *watch, to store.Follower) *progress {
	return &progress{store: s, watch: w, to: to, ticker: time.NewTicker(cmp.Or(s.o.Bookmarks, store.ConfirmInterval)), proofs: make(chan proof, 1)}
}

// await waits for a change, or until the latest revision has to be reported.
func (p *progress) await(ctx context.Context) error {
	select { // in this order if several are ready, so that a run can be repeated
	case proof := <-p.proofs:
		p.take(proof)
		return nil
	default:
	}
	select {
	case <-p.watch.changed:
	case <-p.ticker.C:
		p.ask(ctx)
	case proof := <-p.proofs:
		p.take(proof)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// take takes a proof that the watch has to reach.
func (p *progress) take(proof proof) {
	p.asking = false
	if proof.err == nil && proof.lists == p.watch.lists {
		p.waits = &proof
	}
}

// ask reads the latest revision, unless such a read is in progress.
func (p *progress) ask(ctx context.Context) {
	if p.asking {
		return
	}
	p.asking = true
	go func() {
		// What is stored in the same moment may be stored after the read.
		asked, revision, lists := time.Now().Add(-time.Nanosecond), int64(0), 0
		read := func(Fault) error {
			p.store.mu.Lock()
			defer p.store.mu.Unlock()
			revision, lists = p.store.revision, p.store.history.lists
			return nil
		}
		var err error
		if p.store.network == nil {
			err = read(Fault{})
		} else {
			err = p.store.do(ctx, Progress, p.watch.kind.Name, read)
		}
		if err != nil { // read may still run
			p.proofs <- proof{err: err}
			return
		}
		p.proofs <- proof{asked: asked, revision: revision, lists: lists}
	}()
}

// reached takes the revision that the watch has reported.
func (p *progress) reached(revision int64) {
	if p.waits != nil && revision >= p.waits.revision {
		store.Confirmed(p.to, p.waits.asked)
		p.waits = nil
	}
}
