package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
)

// Objects is the store as agents see it. It has no settings.
type Objects struct{ s *Store }

var (
	_ objects.Store = Objects{}
	_ objects.Ender = Objects{}
)

// Objects returns the store as agents see it. Use it on a store with a Network.
func (s *Store) Objects() Objects { return Objects{s} }

// Type returns "memory".
func (a Objects) Type() string { return a.s.Type() }

// Endpoint returns "memory".
func (a Objects) Endpoint() string { return a.s.Endpoint() }

// Ends implements objects.Ender.
func (a Objects) Ends() bool { return a.s.EndsLeases() }

// Close does nothing.
func (a Objects) Close() error { return nil }

// do makes a request about an object.
func (a Objects) do(ctx context.Context, c Call, key objects.Key, serve func() error) error {
	if key.Kind == objects.Setting {
		return fmt.Errorf("%s %s: %w: this store has no settings", c, key, controlplane.ErrNotFound)
	}
	err := a.s.do(ctx, c, key.String(), func(Fault) error {
		a.s.mu.Lock()
		defer a.s.mu.Unlock()
		return serve()
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", c, key, err)
	}
	return nil
}

// object returns the stored object of a key, with version None if there is none. The caller holds mu.
func (a Objects) object(key objects.Key) objects.Object {
	e := a.s.objects[key.String()]
	if e == nil {
		return objects.Object{Key: key}
	}
	return objects.Object{Key: key, Value: slices.Clone(e.value), Version: objects.Version(a.s.version(e.revision))}
}

// compare returns a conflict unless that version is stored. The caller holds mu.
func (a Objects) compare(key objects.Key, version objects.Version) error {
	stored := a.object(key)
	if stored.Version == version {
		return nil
	}
	return &objects.ConflictError{Stored: stored, Err: fmt.Errorf("%w: version is %q, not %q", controlplane.ErrConflict, stored.Version, version)}
}

// Get implements objects.Store.
func (a Objects) Get(ctx context.Context, key objects.Key) (objects.Object, error) {
	var found objects.Object
	err := a.do(ctx, Get, key, func() error {
		if found = a.object(key); found.Version == objects.None {
			return controlplane.ErrNotFound
		}
		return nil
	})
	return found, err
}

// Put implements objects.Store.
func (a Objects) Put(ctx context.Context, key objects.Key, put objects.Put) (objects.Version, error) {
	var version objects.Version
	err := a.do(ctx, Update, key, func() error {
		if err := a.compare(key, put.Instead); err != nil {
			return err
		}
		s, path := a.s, key.String()
		if s.objects[path] != nil {
			s.rewrite(path, slices.Clone(put.Value))
		} else {
			s.put(path, slices.Clone(put.Value))
		}
		if put.TTL > 0 && s.o.EndsLeases {
			s.bind(s.objects[path], put.TTL)
		}
		version = objects.Version(s.version(s.revision))
		return nil
	})
	return version, err
}

// Delete implements objects.Store. On Kubernetes, the Lease of a Node stays.
func (a Objects) Delete(ctx context.Context, key objects.Key, version objects.Version) error {
	return a.do(ctx, Delete, key, func() error {
		if version != objects.None {
			if err := a.compare(key, version); err != nil {
				return err
			}
		}
		a.s.remove(key.String())
		if key.Kind == objects.Node && a.s.o.EndsLeases {
			a.s.remove(objects.Key{Kind: objects.Lease, Node: key.Node}.String())
		}
		return nil
	})
}

// List implements objects.Store. It has one page.
func (a Objects) List(ctx context.Context, kind objects.Kind, node, _ string) (found []objects.Object, next string, err error) {
	err = a.do(ctx, List, objects.Key{Kind: kind, Node: node}, func() error {
		found = nil
		for path := range a.s.objects {
			parts := strings.Split(path, "/")
			if objects.Kind(parts[0]) != kind || node != "" && parts[1] != node {
				continue
			}
			found = append(found, a.object(objects.Key{Kind: kind, Node: parts[1], Name: strings.Join(parts[2:], "/")}))
		}
		slices.SortFunc(found, func(a, b objects.Object) int { return strings.Compare(a.Key.String(), b.Key.String()) })
		return nil
	})
	return found, "", err
}

// Watch implements objects.Store. Each state that it sends is a request of its own, which may arrive after other changes.
func (a Objects) Watch(ctx context.Context, key objects.Key, seen chan<- objects.Object) error {
	w := &watch{path: key.String(), changed: make(chan struct{}, 1)}
	a.s.open(w)
	defer a.s.close(w)
	w.wake()
	for {
		select {
		case <-w.changed:
		case <-ctx.Done():
			return fmt.Errorf("watch %s: %w", key, context.Cause(ctx))
		}
		a.s.mu.Lock()
		state := a.object(key)
		a.s.mu.Unlock()
		if err := a.do(ctx, Event, key, func() error { return nil }); err != nil {
			return err
		}
		select {
		case seen <- state:
		case <-ctx.Done():
			return fmt.Errorf("watch %s: %w", key, context.Cause(ctx))
		}
	}
}
