package kubernetes

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

const (
	// pingTime limits a Ping.
	pingTime = 2 * time.Second
	// watchTime is how long one watch of a Follow with confirmations lasts. An API server sends a bookmark
	// two seconds before its end, and else only once a minute.
	watchTime = 10 * time.Second
	// proofInterval is the time between two reads of the version of a kind.
	proofInterval = 2 * time.Second
	// stalledAfter is how long a watch may not reach a version that was read. That is two bookmarks. A list then
	// confirms the kind before it counts as silent, after 30 seconds.
	stalledAfter = 22 * time.Second
	// restoreTime is less than persons need to stop API servers, restore their etcd and start them.
	restoreTime = 20 * time.Second
)

// Ping reads the current version of Nodes, which the server has to confirm with the majority of its
// etcd. After an error, what was read before counts no more: a backup may be restored.
func (f *Fleet) Ping(ctx context.Context) error {
	err := f.ping(ctx)
	if err != nil {
		f.reads.forget()
	}
	return err
}

func (f *Fleet) ping(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ping %s: %w", f.Endpoint(), context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTime, controlplane.ErrNoAnswer)
	defer cancel()
	f.mu.Lock()
	before := f.newest
	f.mu.Unlock()
	version, err := f.version(ctx, "ping "+f.Endpoint(), store.Nodes)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest = version
	if older(version, before) || jumped(before, version) {
		return fmt.Errorf("ping %s: %w", f.Endpoint(), store.ErrRestored)
	}
	return nil
}

// jumped reports whether a version is too far from another to be reached between two pings.
func jumped(from, to string) bool {
	before, err := strconv.ParseUint(from, 10, 64)
	after, invalid := strconv.ParseUint(to, 10, 64)
	return err == nil && invalid == nil && after > before && after-before > store.RestoreJump
}

// older reports whether a version is certainly older than another.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// version reads the current version of a kind: it lists the metadata of one object.
func (f *Fleet) version(ctx context.Context, operation string, kind store.Kind) (string, error) {
	group, err := f.group(kind)
	if err != nil {
		return "", err
	}
	page := &metav1.PartialObjectMetadataList{}
	err = f.client.pageOf(ctx, operation, group, "", 1, page, func(r rest.Interface) *rest.Request {
		return of(kind, r.Get(), "PartialObjectMetadataList").SetHeader("Accept", partialMetadata)
	})
	return page.GetResourceVersion(), err
}

// progress proves how recent the reports of a Follow are. It reads the version of the kind, and then
// waits until the watch has reached it: by a change, or by a bookmark. The goroutine of the Follow owns
// it.
//
// If a watch has not reached a version for long, it is silent, or its server is older than 1.31, or on etcd
// before 3.4.31 and 3.5.13: that server sends bookmarks with an old version for a kind that does not change.
// Nothing can distinguish these, so a list follows.
type progress struct {
	to      store.Follower
	read    func(ctx context.Context) (version string, err error)
	answers chan proof
	asking  bool
	proofs  []proof // versions that the watch has not reached yet, oldest first
	reached string
	last    time.Time // when the last read of a version, or a list, was answered
}

// proof is the version that a kind had after a time.
type proof struct {
	asked   time.Time
	reached string // version that the watch had reached before
	version string
	err     error
}

// ask reads the version of the kind, unless such a read is in progress.
func (p *progress) ask(ctx context.Context) {
	if p.asking {
		return
	}
	p.asking = true
	reached := p.reached
	go func() {
		asked := time.Now()
		version, err := p.read(ctx)
		p.answers <- proof{asked, reached, version, err}
	}()
}

// answer takes a version that was read. It reports whether the store went back to an earlier state, or may have
// done that: after a time without answers, a restored store may be as far again, and the watch may go on in it. Then
// the Follow has to list again.
func (p *progress) answer(answer proof) (restored bool) {
	p.asking = false
	switch {
	case answer.err != nil: // its caller has no facts meanwhile
		return false
	case older(answer.version, answer.reached), time.Since(p.last) > restoreTime:
		return true
	}
	p.last = time.Now()
	p.proofs = append(p.proofs, answer)
	p.pass(p.reached)
	return false
}

// pass records the version that the watch has reached.
func (p *progress) pass(version string) {
	p.reached = version
	passed := -1
	for i, proof := range p.proofs {
		if !older(version, proof.version) {
			passed = i
		}
	}
	if passed < 0 {
		return
	}
	store.Confirmed(p.to, p.proofs[passed].asked)
	p.proofs = p.proofs[passed+1:]
}

// stalled reports whether the watch has not reached a version for too long, so that the Follow has to
// list again.
func (p *progress) stalled() bool {
	return len(p.proofs) > 0 && time.Since(p.proofs[0].asked) > stalledAfter
}

// list takes the version of a list that was requested at a time.
func (p *progress) list(version string, asked time.Time) {
	p.reached, p.proofs, p.last = version, nil, time.Now()
	store.Confirmed(p.to, asked)
}
