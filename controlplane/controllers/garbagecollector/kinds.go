package garbagecollector

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/loop"
)

// Discoverer is a Store whose kinds are known only at run time.
type Discoverer interface {
	store.Store
	// Kinds returns the kinds whose objects can have owners, with their metadata alone: of each type one
	// for each version, the best first. stale reports whether a kind that is not among them may exist.
	Kinds(ctx context.Context) (kinds []store.Kind, stale func(store.Kind) bool, err error)
}

const (
	// rediscover is how often kinds are looked for, beside whenever a type is registered.
	rediscover = 30 * time.Second
	// discoverPause is the time from the registration of a type to a discovery. A type that is registered
	// changes several times, and the store lists it a moment later.
	discoverPause = time.Second
)

// registrations are the kinds whose objects are types.
var registrations = map[schema.GroupKind]bool{
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: true,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             true,
}

// RunKinds follows all kinds of the store, which is a Discoverer, until ctx ends. heartbeat receives how each discovery went.
func (c *Controller) RunKinds(ctx context.Context, d Discoverer, heartbeat func(error)) error {
	r := kindsRun{Controller: c, store: d, types: loop.NewSignal(), running: map[string]*following{}}
	defer r.stop()
	for {
		err := r.discover(ctx)
		heartbeat(err)
		wait := rediscover
		if err != nil {
			wait = executor.Backoff(1).Pause()
		}
		select {
		case <-r.types:
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := bounded.Sleep(ctx, discoverPause); err != nil {
			return err
		}
	}
}

// kindsRun is a RunKinds. Its goroutine owns its fields.
type kindsRun struct {
	*Controller
	store   Discoverer
	types   loop.Signal // a type may have come or gone
	running map[string]*following
	refused sync.Once // logs the first kind that this server has no right to follow
}

// following is a kind that is followed.
type following struct {
	versions []store.Kind
	stop     context.CancelFunc
	ended    chan struct{}
}

// end waits until nothing of the kind is reported any more.
func (f *following) end() {
	f.stop()
	<-f.ended
}

func (r *kindsRun) stop() {
	for _, f := range r.running {
		f.stop()
	}
	for _, f := range r.running {
		f.end()
	}
}

// discover follows kinds that are new, and forgets those that exist no more.
func (r *kindsRun) discover(ctx context.Context) error {
	kinds, stale, err := r.store.Kinds(ctx)
	if err != nil {
		return err
	}
	found := map[string][]store.Kind{}
	for _, k := range kinds {
		found[k.Name] = append(found[k.Name], k)
	}
	for name, f := range r.running {
		if same(f.versions, found[name]) || len(found[name]) == 0 && stale(f.versions[0]) {
			delete(found, name)
			continue
		}
		f.end()
		delete(r.running, name)
		if len(found[name]) == 0 {
			r.graph.drop(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) { // in this order, so that a run can be repeated
		versions := found[name]
		ctx, stop := context.WithCancel(ctx)
		f := &following{versions, stop, make(chan struct{})}
		to := r.graph.add(versions[0], store.AllChanges)
		r.running[name] = f
		go func() {
			defer close(f.ended)
			r.follow(ctx, f.versions, to)
		}()
	}
	return nil
}

// same reports whether two lists have the same versions of a kind.
func same(a, b []store.Kind) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].GVK != b[i].GVK || (a[i].NameOf == nil) != (b[i].NameOf == nil) {
			return false
		}
	}
	return true
}

// follow follows a kind until ctx ends: in another version if one cannot be read, which may need a
// conversion that fails.
func (r *kindsRun) follow(ctx context.Context, versions []store.Kind, to *follower) {
	failed := executor.Backoff(0)
	for i := 0; ctx.Err() == nil; i++ {
		kind, before := versions[i%len(versions)], to.synced()
		as := &follower{to.g, to.kind, kind}
		var receiver store.Follower = as
		if registrations[kind.GVK.GroupKind()] {
			receiver = registrar{as, r.types}
		}
		err := r.store.Follow(ctx, kind, store.AllChanges, r.graph.source(to.kind, receiver))
		if ctx.Err() != nil {
			return
		}
		if to.synced() != before { // it was followed
			failed, i = 0, i-1
		}
		failed = failed.Next()
		r.graph.failed(kind.Name, err)
		pause := min(failed.Pause(), store.FollowRetry)
		if errors.Is(err, controlplane.ErrForbidden) { // the store is not away, and rights are given rarely
			pause = failed.Pause()
			r.refused.Do(func() {
				r.log.Warn("no right to list and watch a kind, keeping objects that such objects own", "kind", kind.Name, "error", err)
			})
		}
		_ = bounded.Sleep(ctx, pause) // which ends with ctx
	}
}

// registrar is a follower of objects that are types.
type registrar struct {
	*follower
	types loop.Signal
}

// Set implements store.Follower.
func (r registrar) Set(name string, o store.Object) {
	r.follower.Set(name, o)
	r.types.Send()
}

// Delete implements store.Follower.
func (r registrar) Delete(name string) {
	r.follower.Delete(name)
	r.types.Send()
}
