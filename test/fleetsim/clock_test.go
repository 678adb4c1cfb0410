package fleetsim

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"sync/atomic"
	"time"

	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/store"
)

// clock is the wall clock of a machine. All processes of a run have one clock, so a clock that is wrong changes the
// times that its processes store, and those that they read: for them, each stored time is wrong by as much.
type clock struct{ ahead atomic.Int64 }

// stored returns a value as a process stores it.
func (c *clock) stored(value []byte) []byte { return shift(value, time.Duration(c.ahead.Load())) }

// seen returns a value as a process reads it.
func (c *clock) seen(value []byte) []byte { return shift(value, -time.Duration(c.ahead.Load())) }

// stamps matches times in JSON, without the fraction of the second. by is in whole seconds.
var stamps = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`)

// shift moves all times in a value.
func shift(value []byte, by time.Duration) []byte {
	if by == 0 {
		return value
	}
	return stamps.ReplaceAllFunc(value, func(text []byte) []byte {
		at, err := time.Parse("2006-01-02T15:04:05", string(text))
		if err != nil || at.Add(by).Year() < 1000 {
			return text // a hostile host may write anything
		}
		return at.Add(by).AppendFormat(nil, "2006-01-02T15:04:05")
	})
}

// shifted returns an object whose times are moved by one of the functions above.
func shifted(o store.Object, by func([]byte) []byte) store.Object {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	moved := by(text)
	if &moved[0] == &text[0] {
		return o
	}
	next := reflect.New(reflect.TypeOf(o).Elem()).Interface().(store.Object)
	if err := json.Unmarshal(moved, next); err != nil {
		panic(err)
	}
	return next
}

// seen returns an object as the server reads it.
func (f front) seen(o store.Object, err error) (store.Object, error) {
	if err != nil || o == nil || reflect.ValueOf(o).IsNil() {
		return o, err
	}
	return shifted(o, f.process.clock.seen), nil
}

// Get implements store.Store.
func (f front) Get(ctx context.Context, kind store.Kind, name string) (store.Object, error) {
	return f.seen(f.Store.Get(ctx, kind, name))
}

// Create implements store.Store.
func (f front) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	return f.seen(f.Store.Create(ctx, kind, shifted(o, f.process.clock.stored)))
}

// Update implements store.Store.
func (f front) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	return f.seen(f.Store.Update(ctx, kind, name, pre, func(o store.Object) error {
		seen := shifted(o, f.process.clock.seen)
		err := edit(seen)
		if seen != o {
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(shifted(seen, f.process.clock.stored)).Elem())
		}
		return err
	}))
}

// follower is a Follower of a server.
type follower struct {
	store.Follower
	clock *clock
}

// Set implements store.Follower.
func (f follower) Set(name string, o store.Object) { f.Follower.Set(name, shifted(o, f.clock.seen)) }

// Reached implements store.Tracker.
func (f follower) Reached(version string) { store.Reached(f.Follower, version) }

// Confirmed implements store.Confirmer.
func (f follower) Confirmed(at time.Time) { store.Confirmed(f.Follower, at) }

// Get implements objects.Store.
func (s hostStore) Get(ctx context.Context, key objects.Key) (objects.Object, error) {
	o, err := s.Objects.Get(ctx, key)
	o.Value = s.process.clock.seen(o.Value)
	return o, err
}

// Put implements objects.Store.
func (s hostStore) Put(ctx context.Context, key objects.Key, put objects.Put) (objects.Version, error) {
	put.Value = s.process.clock.stored(put.Value)
	version, err := s.Objects.Put(ctx, key, put)
	if conflict, is := errors.AsType[*objects.ConflictError](err); is {
		conflict.Stored.Value = s.process.clock.seen(conflict.Stored.Value)
	}
	return version, err
}

// List implements objects.Store.
func (s hostStore) List(ctx context.Context, kind objects.Kind, node, page string) ([]objects.Object, string, error) {
	found, next, err := s.Objects.List(ctx, kind, node, page)
	for i := range found {
		found[i].Value = s.process.clock.seen(found[i].Value)
	}
	return found, next, err
}

// setClock moves the clock of a machine. What its processes have read before is read again, and what a host has on its
// disk has the old times. A server starts again, because it would take each time that it reads again for a new one.
func (w *world) setClock(name string, by time.Duration) {
	p := w.network(name)
	p.clock.ahead.Add(int64(by))
	if s := w.server(name); s != nil {
		if p.ctx.Err() == nil {
			p.kill()
			s.boots()
		}
		return
	}
	w.host(name).disk.shift(-by)
	p.breaks("", errBroken)
}

// shift moves the times on the disk.
func (d *disk) shift(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.saved != nil {
		d.saved.shift(by)
	}
	for _, values := range []map[string][]byte{d.files, d.values, d.synced} {
		for key, value := range values {
			values[key] = shift(value, by)
		}
	}
}
