package garbagecollector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/loop"
)

const (
	// longestWait is the longest time from one decision to the next.
	longestWait = 10 * time.Second
	// lookupRetry is how soon an object is read again after a read that failed.
	lookupRetry = time.Second
	// renewals is how often a step is decided again when it is refused, and renewPause how long what has
	// changed may take to be seen before that.
	renewals, renewPause = 5, 20 * time.Millisecond
)

// Controller deletes objects whose owners are gone while it leads. Its graph is filled on every replica.
type Controller struct {
	OnDone    func(Step)    // called after a step was stored; set it before Run, nil for nothing
	OnRefused func(Refusal) // called once for an object while this replica leads; likewise

	*executor.Executor[Step]
	leads   atomic.Bool
	store   store.Store
	contact *store.Contact
	graph   *graph
	log     *slog.Logger

	mu     sync.Mutex // guards waited
	waited error      // for which facts the last decision waited
}

// Report is what the controller does, for people and metrics. It does not change.
type Report struct {
	executor.Report
	Facts      []Fact           // what is due, waits or cannot be decided, by name
	Objects    int              // known
	Kinds      map[string]error // why a kind cannot be followed; nil if it can
	Unreadable map[string]error // objects, by KIND/NAME
}

// New returns a controller for the objects of a store.
func New(s store.Store, contact *store.Contact, log *slog.Logger) *Controller {
	changed := loop.NewSignal()
	c := &Controller{store: s, contact: contact, graph: newGraph(changed, s.EndsLeases()), log: log.With("component", Name)}
	c.Executor = executor.New(executor.Job[Step]{Facts: c.waits, Decide: c.decide, Write: c.write, Done: c.done}, changed, c.log)
	return c
}

// Follow is a kind that the controller reads.
type Follow struct {
	Kind  store.Kind
	Scope store.Scope
	To    store.Follower
}

// Follows returns what the controller reads of a store whose kinds do not change. A Lease is written so
// often that only its deletion is followed.
func (c *Controller) Follows() []Follow {
	var follows []Follow
	for _, f := range []Follow{
		{Kind: store.Nodes}, {Kind: store.Leases, Scope: store.Deletions}, {Kind: store.Events}, {Kind: store.Objects},
	} {
		f.To = c.graph.add(f.Kind, f.Scope).kind.source
		follows = append(follows, f)
	}
	return follows
}

// Report returns the last decisions, and how their execution goes.
func (c *Controller) Report() Report {
	r := Report{Report: c.Executor.Report()}
	c.graph.report(&r)
	return r
}

// facts returns an error unless all objects are known, and recent.
func (c *Controller) facts(now time.Time) error {
	sources, known := c.graph.sources()
	switch {
	case !known:
		return errors.New("reading the kinds of objects")
	case c.graph.finishes:
		_, err := c.contact.Fresh(now, sources...)
		return err
	}
	return c.contact.Listed(now, sources...) // Kubernetes does not confirm watches of metadata
}

// waits is facts, but also returns an error until a decision was made from all of them.
func (c *Controller) waits(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.facts(now), c.waited)
}

// decide returns the steps that are due. It does not wait for all objects: a write compares that an owner is absent.
func (c *Controller) decide(now time.Time) ([]Step, time.Time, error) {
	if _, err := c.contact.Since(now); err != nil {
		return nil, time.Time{}, err
	}
	waited, next := c.facts(now), now.Add(longestWait)
	if waited != nil {
		next = now.Add(lookupRetry)
	}
	due := c.graph.decide()
	c.mu.Lock()
	c.waited = waited
	c.mu.Unlock()
	if c.OnRefused != nil && c.leads.Load() && waited == nil { // an owner may be known once all is listed
		for _, r := range c.graph.takeRefusals() {
			c.OnRefused(r)
		}
	}
	return due, next, nil
}

// Lead is that of the Executor.
func (c *Controller) Lead(ctx context.Context, term store.Term) error {
	c.leads.Store(true)
	defer c.leads.Store(false)
	return c.Executor.Lead(ctx, term)
}

// write carries out a step. The store checks its reasons once more. If something else has changed since
// a step was decided that needs to know how far each kind was followed, it is decided again a few times.
func (c *Controller) write(ctx context.Context, term store.Term, s Step) error {
	kind, known := c.graph.storeKind(s.Kind)
	if !known {
		return fmt.Errorf("%s: %w: its type exists no more", s.Object(), controlplane.ErrNotFound)
	}
	err := c.try(ctx, kind, term, s)
	for range renewals {
		if !s.bound() || !errors.Is(err, controlplane.ErrConflict) {
			break
		}
		if err := bounded.Sleep(ctx, renewPause); err != nil {
			return err
		}
		again, due := c.graph.renew(s)
		if !due {
			break
		}
		err = c.try(ctx, kind, term, again)
	}
	if errors.Is(err, controlplane.ErrConflict) || errors.Is(err, controlplane.ErrNotFound) {
		if s.Finalizer == metav1.FinalizerOrphanDependents {
			c.graph.refused(s.Key)
		}
		c.graph.again(s.Key)
		for _, o := range s.others {
			c.graph.again(Key{o.Kind.Name, o.Name})
		}
	}
	return err
}

// try makes the write of a step.
func (c *Controller) try(ctx context.Context, kind store.Kind, term store.Term, s Step) error {
	pre := store.Preconditions{UID: s.UID, Version: s.Revision, Term: term, Others: s.others, Unchanged: s.unchanged, Unlisted: s.unlisted}
	switch s.Do {
	case Delete, Remove:
		return c.store.Delete(ctx, kind, s.Name, pre, s.Policy)
	case Detach, Release:
	}
	if s.Finalizer == metav1.FinalizerOrphanDependents {
		c.graph.orphans(s.Key) // before it is gone
	}
	return c.release(ctx, kind.Metadata(), pre, s)
}

// Releaser is a Store that removes owner references and a finalizer without reading the object before;
// errors.ErrUnsupported for a type where it cannot.
type Releaser interface {
	Release(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, owners []types.UID, finalizer string) error
}

// release removes owner references or a finalizer.
func (c *Controller) release(ctx context.Context, kind store.Kind, pre store.Preconditions, s Step) error {
	if r, able := c.store.(Releaser); able && !s.shared {
		var owners []types.UID
		for _, o := range s.Owners {
			owners = append(owners, o.UID)
		}
		if err := r.Release(ctx, kind, s.Name, pre, owners, s.Finalizer); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	_, err := c.store.Update(ctx, kind, s.Name, pre, s.edit)
	return err
}

// edit changes the metadata of an object.
func (s Step) edit(o store.Object) error {
	switch s.Do {
	case Detach:
		o.SetOwnerReferences(slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()), func(ref metav1.OwnerReference) bool {
			return slices.ContainsFunc(s.Owners, ownerOf(ref).refers)
		}))
	case Release:
		o.SetFinalizers(slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == s.Finalizer }))
	case Delete, Remove:
	}
	return nil
}

// done logs a step.
func (c *Controller) done(s Step, log *slog.Logger) {
	if c.OnDone != nil {
		c.OnDone(s)
	}
	log.Info("object changed", "object", s.Object(), "action", s.Action(), "reason", s.Reason)
}

// RunLookups reads objects that are not followed, until ctx ends. heartbeat receives how each read went.
func (c *Controller) RunLookups(ctx context.Context, heartbeat func(error)) error {
	for {
		err := c.lookUp(ctx, heartbeat)
		heartbeat(err)
		if err != nil {
			if err := bounded.Sleep(ctx, lookupRetry); err != nil {
				return err
			}
			continue
		}
		select {
		case <-c.graph.unseen:
		case <-time.After(longestWait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lookUp reads the objects that are to be read, up to the first that the store does not answer for: the
// others would wait as long.
func (c *Controller) lookUp(ctx context.Context, heartbeat func(error)) error {
	keys := c.graph.takeLookups()
	for i, key := range keys {
		kind, _ := c.graph.storeKind(key.Kind)
		o, err := c.store.Get(ctx, kind, key.Name)
		switch {
		case errors.Is(err, store.ErrUnreadable): // it is also an ErrInvalid
		case errors.Is(err, controlplane.ErrNotFound), errors.Is(err, controlplane.ErrInvalid): // no object can have such a name
			c.graph.lookedUp(key, nil)
		case err != nil:
			for _, left := range keys[i:] {
				c.graph.again(left)
			}
			return err
		default:
			c.graph.lookedUp(key, o)
		}
		heartbeat(nil)
	}
	return nil
}
