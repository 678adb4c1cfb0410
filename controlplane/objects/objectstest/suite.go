package objectstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
)

// checkTimeout limits one check, also on a machine that is busy with something else.
const checkTimeout = 10 * time.Minute

// Run checks every promise of objects.Store, each on a new and empty store.
func Run(t *testing.T, newStore func(t *testing.T) objects.Store) {
	for name, check := range map[string]func(ctx context.Context, s objects.Store) error{
		"a value is put where nothing is, read and replaced":        checkPut,
		"a conflict error has the stored object":                    checkConflict,
		"no version is used twice":                                  checkVersions,
		"of many puts from one version, one is stored":              checkRace,
		"an object expires unless it is put again":                  checkTTL,
		"an object is deleted only at the given version":            checkDelete,
		"deleting a node deletes its lease, and nothing else":       checkDeleteNode,
		"a kind is listed page by page, events of one node as well": checkList,
		"a watch reports each state and the deletion":               checkWatch,
		"a call whose context has ended ends":                       checkCancelled,
		"large values and long names are kept":                      checkLarge,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			ctx, cancel := context.WithTimeout(t.Context(), checkTimeout)
			defer cancel()
			if err := check(ctx, s); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("Close() = %v, want no error", err)
			}
		})
	}
}

// RequestPace sets the Lease duration that a store requests from all hosts; an empty duration
// requests none.
func RequestPace(ctx context.Context, s objects.Store, duration string) error {
	key := objects.Key{Kind: objects.Setting, Node: objects.LeaseDuration}
	if duration == "" {
		return s.Delete(ctx, key, objects.None)
	}
	before, err := s.Get(ctx, key)
	if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
		return err
	}
	_, err = s.Put(ctx, key, objects.Put{Value: []byte(duration + "\n"), Instead: before.Version})
	return err
}

// EditNode changes a stored Node as another client does that does not follow the rules of Client.
func EditNode(ctx context.Context, s objects.Store, name string, change func(*corev1.Node)) error {
	for {
		stored, err := s.Get(ctx, nodeKey(name))
		if err != nil {
			return err
		}
		var node corev1.Node
		if err := json.Unmarshal(stored.Value, &node); err != nil {
			return err
		}
		change(&node)
		value, err := json.Marshal(&node)
		if err != nil {
			return err
		}
		if _, err = s.Put(ctx, stored.Key, objects.Put{Value: value, Instead: stored.Version}); !errors.Is(err, controlplane.ErrConflict) {
			return err
		}
	}
}

func nodeKey(name string) objects.Key  { return objects.Key{Kind: objects.Node, Node: name} }
func leaseKey(name string) objects.Key { return objects.Key{Kind: objects.Lease, Node: name} }
func eventKey(node, name string) objects.Key {
	return objects.Key{Kind: objects.Event, Node: node, Name: name}
}

// value returns the value of a key, with a mark by which the check recognizes it.
func value(key objects.Key, mark string) []byte {
	var object any
	switch key.Kind {
	case objects.Lease:
		o := &coordinationv1.Lease{}
		o.Kind, o.APIVersion, o.Name, o.Namespace = "Lease", "coordination.k8s.io/v1", key.Node, controlplane.LeaseNamespace
		o.Annotations = map[string]string{"mark": mark}
		object = o
	case objects.Event:
		o := &corev1.Event{InvolvedObject: controlplane.NodeReference(key.Node)}
		o.Kind, o.APIVersion, o.Name, o.Namespace = "Event", "v1", key.Name, "default"
		o.Annotations = map[string]string{"mark": mark}
		object = o
	default:
		o := &corev1.Node{}
		o.Kind, o.APIVersion, o.Name = "Node", "v1", key.Node
		o.Annotations = map[string]string{"mark": mark}
		object = o
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // cannot fail: plain fields
	}
	return text
}

// put stores a value if the stored version is instead.
func put(ctx context.Context, s objects.Store, key objects.Key, mark string, instead objects.Version, ttl time.Duration) (objects.Version, error) {
	version, err := s.Put(ctx, key, objects.Put{Value: value(key, mark), Instead: instead, TTL: ttl})
	if err != nil {
		return objects.None, fmt.Errorf("Put(%s) in the place of %q = %w, want no error", key, instead, err)
	}
	if version == objects.None {
		return objects.None, fmt.Errorf("Put(%s) gave no version", key)
	}
	return version, nil
}

// want returns an error unless the object has that value and version.
func want(call string, o objects.Object, key objects.Key, mark string, version objects.Version) error {
	if o.Key != key || o.Version != version || version != objects.None && !bytes.Equal(o.Value, value(key, mark)) {
		return fmt.Errorf("%s = %s %q %s, want %s %q %s", call, o.Key, o.Version, o.Value, key, version, value(key, mark))
	}
	return nil
}

// wantStored returns an error unless the stored object has that value and version.
func wantStored(ctx context.Context, s objects.Store, key objects.Key, mark string, version objects.Version) error {
	o, err := s.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("Get(%s) = %w, want no error", key, err)
	}
	return want("Get()", o, key, mark, version)
}

// wantConflict returns an error unless err is a refusal that contains that object.
func wantConflict(call string, err error, key objects.Key, mark string, version objects.Version) error {
	conflict, refused := errors.AsType[*objects.ConflictError](err)
	if !refused || !errors.Is(err, controlplane.ErrConflict) {
		return fmt.Errorf("%s = %w, want a ConflictError that is %q", call, err, controlplane.ErrConflict)
	}
	return want("ConflictError.Stored of "+call, conflict.Stored, key, mark, version)
}

func wantNone(ctx context.Context, s objects.Store, key objects.Key) error {
	if _, err := s.Get(ctx, key); !errors.Is(err, controlplane.ErrNotFound) {
		return fmt.Errorf("Get(%s) = %v, want an error that is %q", key, err, controlplane.ErrNotFound)
	}
	return nil
}

func checkPut(ctx context.Context, s objects.Store) error {
	for _, key := range []objects.Key{nodeKey("a"), leaseKey("a"), eventKey("a", "a.1")} {
		if err := wantNone(ctx, s, key); err != nil {
			return err
		}
		first, err := put(ctx, s, key, "first", objects.None, 0)
		if err != nil {
			return err
		}
		if err := wantStored(ctx, s, key, "first", first); err != nil {
			return err
		}
		second, err := put(ctx, s, key, "second", first, 0)
		if err != nil {
			return err
		}
		if second == first {
			return fmt.Errorf("Put(%s) gave version %q twice", key, first)
		}
		if err := wantStored(ctx, s, key, "second", second); err != nil {
			return err
		}
	}
	return nil
}

func checkConflict(ctx context.Context, s objects.Store) error {
	key := nodeKey("a")
	_, err := s.Put(ctx, key, objects.Put{Value: value(key, "x"), Instead: "gone"})
	if err := wantConflict("Put() in the place of what is not there", err, key, "", objects.None); err != nil {
		return err
	}
	first, err := put(ctx, s, key, "first", objects.None, 0)
	if err != nil {
		return err
	}
	_, err = s.Put(ctx, key, objects.Put{Value: value(key, "x")})
	if err := wantConflict("Put() where something is", err, key, "first", first); err != nil {
		return err
	}
	second, err := put(ctx, s, key, "second", first, 0)
	if err != nil {
		return err
	}
	_, err = s.Put(ctx, key, objects.Put{Value: value(key, "x"), Instead: first})
	if err := wantConflict("Put() in the place of a version that is gone", err, key, "second", second); err != nil {
		return err
	}
	return wantStored(ctx, s, key, "second", second)
}

func checkVersions(ctx context.Context, s objects.Store) error {
	key, seen := nodeKey("a"), map[objects.Version]bool{}
	for range 3 {
		version := objects.None
		for range 2 {
			var err error
			if version, err = put(ctx, s, key, "same", version, 0); err != nil {
				return err
			}
			if seen[version] {
				return fmt.Errorf("Put() gave version %q again", version)
			}
			seen[version] = true
		}
		if err := s.Delete(ctx, key, version); err != nil {
			return fmt.Errorf("Delete() = %w, want no error", err)
		}
	}
	return nil
}

func checkRace(ctx context.Context, s objects.Store) error {
	key := leaseKey("a")
	first, err := put(ctx, s, key, "first", objects.None, time.Hour)
	if err != nil {
		return err
	}
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = s.Put(ctx, key, objects.Put{Value: value(key, fmt.Sprint(i)), Instead: first, TTL: time.Hour})
		})
	}
	wg.Wait()
	stored := 0
	for _, err := range errs {
		switch {
		case err == nil:
			stored++
		case !errors.Is(err, controlplane.ErrConflict):
			return fmt.Errorf("Put() among others = %w, want no error or a conflict", err)
		}
	}
	if stored != 1 {
		return fmt.Errorf("puts stored of %d from one version = %d, want 1", len(errs), stored)
	}
	return nil
}

func checkTTL(ctx context.Context, s objects.Store) error {
	ends, renewed, stays := leaseKey("ends"), leaseKey("renewed"), leaseKey("stays")
	second, err := replace(ctx, s, renewed, time.Hour)
	if err != nil {
		return err
	}
	after, err := replace(ctx, s, stays, 0)
	if err != nil {
		return err
	}
	if _, err := put(ctx, s, ends, "last", objects.None, time.Second); err != nil {
		return err
	}
	w := follow(ctx, s, ends)
	if err := w.until("the object's end", func(o objects.Object) bool { return o.Version == objects.None }); err != nil {
		return err
	}
	if err := w.end(); err != nil {
		return err
	}
	if err := wantNone(ctx, s, ends); err != nil {
		return err
	}
	if err := wantStored(ctx, s, renewed, "second", second); err != nil {
		return err
	}
	if _, err := put(ctx, s, ends, "anew", objects.None, time.Hour); err != nil {
		return err
	}
	return wantStored(ctx, s, stays, "second", after)
}

// replace puts a value that would expire soon, and then another one instead of it. If the first has expired by then,
// it tries again with a TTL of double length.
func replace(ctx context.Context, s objects.Store, key objects.Key, ttl time.Duration) (objects.Version, error) {
	for short := time.Second; ; short *= 2 {
		first, err := put(ctx, s, key, "first", objects.None, short)
		if err != nil {
			return objects.None, err
		}
		second, err := put(ctx, s, key, "second", first, ttl)
		conflict, ok := errors.AsType[*objects.ConflictError](err)
		if !ok || conflict.Stored.Version != objects.None || short > time.Minute {
			return second, err
		}
	}
}

func checkDelete(ctx context.Context, s objects.Store) error {
	for _, key := range []objects.Key{nodeKey("a"), leaseKey("a"), eventKey("a", "a.1")} {
		if err := s.Delete(ctx, key, objects.None); err != nil {
			return fmt.Errorf("Delete(%s) where nothing is = %w, want no error", key, err)
		}
		err := s.Delete(ctx, key, "gone")
		if err := wantConflict("Delete() of a version where nothing is", err, key, "", objects.None); err != nil {
			return err
		}
		first, err := put(ctx, s, key, "first", objects.None, 0)
		if err != nil {
			return err
		}
		second, err := put(ctx, s, key, "second", first, 0)
		if err != nil {
			return err
		}
		err = s.Delete(ctx, key, first)
		if err := wantConflict("Delete() of a version that is gone", err, key, "second", second); err != nil {
			return err
		}
		if err := s.Delete(ctx, key, second); err != nil {
			return fmt.Errorf("Delete(%s) = %w, want no error", key, err)
		}
		if err := wantNone(ctx, s, key); err != nil {
			return err
		}
		if _, err := put(ctx, s, key, "third", objects.None, 0); err != nil {
			return err
		}
		if err := s.Delete(ctx, key, objects.None); err != nil {
			return fmt.Errorf("Delete(%s) of any version = %w, want no error", key, err)
		}
		if err := wantNone(ctx, s, key); err != nil {
			return err
		}
	}
	return nil
}

func checkDeleteNode(ctx context.Context, s objects.Store) error {
	all := []objects.Key{nodeKey("a"), leaseKey("a"), eventKey("a", "a.1"), nodeKey("ab"), leaseKey("ab"), leaseKey("a-b"), leaseKey("a.b"), leaseKey("b")}
	versions := map[objects.Key]objects.Version{}
	for _, key := range all {
		var err error
		if versions[key], err = put(ctx, s, key, "x", objects.None, time.Hour); err != nil {
			return err
		}
	}
	if err := s.Delete(ctx, nodeKey("a"), versions[nodeKey("a")]); err != nil {
		return fmt.Errorf("Delete() = %w, want no error", err)
	}
	for _, key := range all[:2] {
		if err := wantNone(ctx, s, key); err != nil {
			return err
		}
	}
	for _, key := range all[2:] {
		if err := wantStored(ctx, s, key, "x", versions[key]); err != nil {
			return err
		}
	}
	return nil
}
