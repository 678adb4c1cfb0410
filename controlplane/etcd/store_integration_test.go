//go:build integration

package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
	bed "hostler.io/hostler/test/etcd"
)

// patience limits waits for something that is quick on any machine.
const patience = 5 * time.Minute

var (
	node  = objects.Key{Kind: objects.Node, Node: "n"}
	lease = objects.Key{Kind: objects.Lease, Node: "n"}
)

// at returns a store in a cluster.
func at(t *testing.T, c *bed.Cluster, change ...func(*etcd.Options)) *etcd.Store {
	t.Helper()
	return open(t, append([]func(*etcd.Options){func(o *etcd.Options) {
		o.Endpoints, o.CA, o.Insecure = c.Endpoints(), c.CAFile, true
	}}, change...)...)
}

// served repeats a call while the cluster does not answer in time, or while it returns one of the other errors. On a
// busy machine, one call exceeds its bound. An error about credentials is an answer.
func served(ctx context.Context, call func() error, others ...error) error {
	repeats := append(others, controlplane.ErrUnavailable)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := call()
		again := slices.ContainsFunc(repeats, func(of error) bool { return errors.Is(err, of) })
		answer := errors.Is(err, controlplane.ErrUnauthorized) || errors.Is(err, controlplane.ErrUntrusted)
		if !again || answer || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
	}
}

// put stores a value. An error ends the test.
func put(t *testing.T, s *etcd.Store, key objects.Key, p objects.Put) objects.Version {
	t.Helper()
	version, err := tryPut(t.Context(), s, key, p)
	if err != nil {
		t.Fatalf("Put(%s) = %v, want no error", key, err)
	}
	return version
}

// tryPut stores a value, again if the answer was lost.
func tryPut(ctx context.Context, s *etcd.Store, key objects.Key, p objects.Put) (version objects.Version, err error) {
	lost := false
	err = served(ctx, func() (err error) {
		version, err = s.Put(ctx, key, p)
		conflict, ok := errors.AsType[*objects.ConflictError](err)
		if lost && ok && bytes.Equal(conflict.Stored.Value, p.Value) { // the answer to an earlier call was lost
			version, err = conflict.Stored.Version, nil
		}
		lost = lost || errors.Is(err, controlplane.ErrUnavailable)
		return err
	})
	return version, err
}

// eventually waits until so returns true.
func eventually(t *testing.T, what string, so func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !so(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v", what, patience)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ctl runs etcdctl as the administrator.
func ctl(t *testing.T, c *bed.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Ctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// holds reads a value. An error ends the test.
func holds(t *testing.T, s *etcd.Store, key objects.Key) (object objects.Object) {
	t.Helper()
	err := served(t.Context(), func() (err error) {
		object, err = s.Get(t.Context(), key)
		return err
	})
	if err != nil {
		t.Fatalf("Get(%s) = %v, want no error", key, err)
	}
	return object
}

func TestAnObjectIsReplacedOnlyAsItWasSeen(t *testing.T) {
	t.Parallel()
	s := at(t, bed.For(t, bed.Options{}))
	if _, err := s.Get(patient(t), node); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("Get() of nothing = %v, want that it is not there", err)
	}
	first := put(t, s, node, objects.Put{Value: []byte("1")})
	if got := holds(t, s, node); got.Version != first || string(got.Value) != "1" || got.Key != node {
		t.Errorf("Get() = %v, want 1 at version %s", got, first)
	}
	second := put(t, s, node, objects.Put{Value: []byte("2"), Instead: first})
	for what, p := range map[string]objects.Put{
		"what is there already": {Value: []byte("3")},
		"an earlier version":    {Value: []byte("3"), Instead: first},
		"no version at all":     {Value: []byte("3"), Instead: "anything"},
	} {
		_, err := s.Put(patient(t), node, p)
		conflict, ok := errors.AsType[*objects.ConflictError](err)
		if !ok || !errors.Is(err, controlplane.ErrConflict) || conflict.Stored.Version != second || string(conflict.Stored.Value) != "2" {
			t.Errorf("Put() instead of %s = %v, want a conflict with value 2 at version %s", what, err, second)
		}
	}
	if err := s.Delete(patient(t), node, first); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("Delete() of an earlier version = %v, want a conflict", err)
	}
	put(t, s, lease, objects.Put{Value: []byte("l"), TTL: time.Hour})
	if err := s.Delete(patient(t), node, second); err != nil {
		t.Fatalf("Delete() = %v, want no error", err)
	}
	if _, err := s.Get(patient(t), lease); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("Get() of the lease after its node was deleted = %v, want that it went along", err)
	}
	if err := s.Delete(patient(t), node, objects.None); err != nil {
		t.Errorf("Delete() of what is gone = %v, want no error", err)
	}
	_, err := s.Put(patient(t), node, objects.Put{Value: []byte("3"), Instead: second})
	if conflict, ok := errors.AsType[*objects.ConflictError](err); !ok || conflict.Stored.Version != objects.None {
		t.Errorf("Put() instead of what is gone = %v, want a conflict with nothing", err)
	}
	if again := put(t, s, node, objects.Put{Value: []byte("1")}); again == first {
		t.Errorf("Put() of the first value again = version %s, want another one than before", again)
	}
	if _, err := s.Put(patient(t), lease, objects.Put{Value: []byte(strings.Repeat("x", 1<<21))}); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("Put() of 2 MiB = %v, want it invalid", err)
	}
}

func TestAListComesInPages(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	s := at(t, c)
	const many = 450
	for i := range many {
		put(t, s, objects.Key{Kind: objects.Event, Node: "n", Name: fmt.Sprintf("n.%03d", i)}, objects.Put{Value: []byte("e"), TTL: time.Hour})
	}
	put(t, s, objects.Key{Kind: objects.Event, Node: "n1", Name: "other"}, objects.Put{Value: []byte("e"), TTL: time.Hour})
	if got := strings.Count(ctl(t, c, "lease", "list", "--write-out=simple"), "\n") - 1; got != 1 {
		t.Errorf("etcd leases of %d events = %d, want them to share one", many+1, got)
	}
	ctl(t, c, "put", "/hostler/events/n/a/b", "nobody's")
	var names []string
	for page := ""; ; {
		found, next, err := s.List(patient(t), objects.Event, "n", page)
		if err != nil {
			t.Fatalf("List() = %v, want no error", err)
		}
		for _, o := range found {
			names = append(names, o.Key.Name)
		}
		if page = next; page == "" {
			break
		}
	}
	if len(names) != many || names[0] != "n.000" || names[many-1] != "n.449" {
		t.Errorf("List() = %d events from %s, want %d in order", len(names), names[0], many)
	}
	if _, _, err := s.List(patient(t), objects.Event, "n", "/elsewhere"); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("List() from a page that is not there = %v, want it invalid", err)
	}
}

func TestALeaseEndsByItselfUnlessItIsRenewed(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	s := at(t, c)
	const ttl = 5 * time.Second
	version := objects.None
	// On a slow machine it may still exist after six seconds. It must only expire at some time.
	began := time.Now()
	for time.Since(began) < ttl+time.Second {
		next, err := s.Put(t.Context(), lease, objects.Put{Value: []byte("l"), Instead: version, TTL: ttl})
		if errors.Is(err, controlplane.ErrConflict) || errors.Is(err, controlplane.ErrUnavailable) {
			version = objects.None // the test was delayed for longer than the TTL, or an answer was lost
			continue
		}
		if err != nil {
			t.Fatalf("Put() = %v, want no error", err)
		}
		version = next
		time.Sleep(200 * time.Millisecond)
	}
	if got := strings.Count(ctl(t, c, "lease", "list", "--write-out=simple"), "\n") - 1; got > 1 {
		t.Errorf("etcd leases of one object that was put many times = %d, want 1", got)
	}
	eventually(t, "the lease that nobody renews is gone", func(ctx context.Context) bool {
		_, err := s.Get(ctx, lease)
		return errors.Is(err, controlplane.ErrNotFound)
	})
	version = put(t, s, lease, objects.Put{Value: []byte("l"), TTL: ttl}) // although its etcd lease has expired

	longer := put(t, s, lease, objects.Put{Value: []byte("l"), Instead: version, TTL: time.Hour})
	id := attached(t, c, "/hostler/leases/n")
	if remaining := ctl(t, c, "lease", "timetolive", id); !strings.Contains(remaining, "granted with TTL(3600s)") {
		t.Errorf("etcd lease after the TTL was raised to an hour = %s, want it to live as long", remaining)
	}
	ctl(t, c, "lease", "revoke", id)
	_, err := s.Put(patient(t), lease, objects.Put{Value: []byte("l"), Instead: longer, TTL: time.Hour})
	if !errors.Is(err, controlplane.ErrConflict) {
		t.Fatalf("Put() after somebody revoked its etcd lease = %v, want a conflict with nothing", err)
	}
	put(t, s, lease, objects.Put{Value: []byte("l"), TTL: time.Hour})
	if now := attached(t, c, "/hostler/leases/n"); now == id || now == "0" {
		t.Errorf("etcd lease of what was put again = %s, want a new one", now)
	}
}

// TestAnEtcdLeaseThatAnotherHostTakesIsReplaced has a host that attaches an object of its own to the etcd leases of
// another one while they have no key, so that the other one may not use them any more.
func TestAnEtcdLeaseThatAnotherHostTakesIsReplaced(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{TLS: true})
	for _, host := range []string{"n", "mallory"} {
		if err := c.Grant(t.Context(), host, "", "readwrite", "/hostler/leases/"+host, "/hostler/events/"+host+"/"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.EnableAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	mallory, _ := clientOf(t, c, "mallory")
	_, files := clientOf(t, c, "n")
	s := at(t, c, func(o *etcd.Options) { o.Certificate, o.Key, o.Insecure = files.Certificate, files.Key, false })
	for _, o := range []struct{ first, next objects.Key }{
		{lease, lease},
		{objects.Key{Kind: objects.Event, Node: "n", Name: "a"}, objects.Key{Kind: objects.Event, Node: "n", Name: "b"}},
	} {
		put(t, s, o.first, objects.Put{Value: []byte("{}"), TTL: time.Hour})
		path := "/hostler/leases/n"
		if o.first.Kind == objects.Event {
			path = "/hostler/events/n/a"
		}
		taken := attached(t, c, path)
		ctl(t, c, "del", path)
		id, err := strconv.ParseInt(taken, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mallory.Put(t.Context(), "/hostler/events/mallory/"+string(o.first.Kind), "{}", clientv3.WithLease(clientv3.LeaseID(id))); err != nil {
			t.Fatalf("mallory takes an etcd lease: %v", err)
		}
		put(t, s, o.next, objects.Put{Value: []byte("{}"), TTL: time.Hour})
		path = strings.TrimSuffix(path, "a") + o.next.Name
		if now := attached(t, c, path); now == taken || now == "0" {
			t.Errorf("etcd lease of %s = %s, want one, but not that of mallory, %s", path, now, taken)
		}
	}
}

// attached returns the ID of a key's etcd lease, in hexadecimal; "0" for none.
func attached(t *testing.T, c *bed.Cluster, key string) string {
	t.Helper()
	id := etcdLease(t, c, key)
	if id == "" {
		t.Fatalf("etcdctl get %s prints no lease", key)
	}
	return id
}

// etcdLease does the same, but returns an empty text if the key does not exist.
func etcdLease(t *testing.T, c *bed.Cluster, key string) string {
	t.Helper()
	for line := range strings.Lines(ctl(t, c, "get", key, "--write-out=fields")) {
		if value, found := strings.CutPrefix(line, `"Lease" :`); found {
			var id int64
			if _, err := fmt.Sscan(value, &id); err != nil {
				t.Fatalf("etcdctl get %s says %q: %v", key, line, err)
			}
			return fmt.Sprintf("%x", id)
		}
	}
	return ""
}

// follow watches an object, and returns a channel of its states.
func follow(t *testing.T, s *etcd.Store, key objects.Key) (seen <-chan objects.Object, ended <-chan error) {
	t.Helper()
	objects, end := make(chan objects.Object), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { end <- s.Watch(ctx, key, objects) }()
	t.Cleanup(cancel)
	return objects, end
}

// sees waits until a watch reports that value; "" means no object.
func sees(t *testing.T, seen <-chan objects.Object, ended <-chan error, want string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case o := <-seen:
			if string(o.Value) == want && (o.Version == objects.None) == (want == "") {
				return
			}
		case err := <-ended:
			t.Fatalf("Watch() = %v, want it to report %q", err, want)
		case <-timeout:
			t.Fatalf("Watch() does not report %q within %v", want, patience)
		}
	}
}

func TestAWatchReportsEachChangeAndSurvivesACompaction(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	s := at(t, c)
	seen, ended := follow(t, s, node)
	sees(t, seen, ended, "")
	first := put(t, s, node, objects.Put{Value: []byte("1")})
	sees(t, seen, ended, "1")
	second := put(t, s, node, objects.Put{Value: []byte("2"), Instead: first})
	ctl(t, c, "put", "/hostler/nodes/n", "3") // nobody receives it
	ctl(t, c, "put", "/hostler/nodes/n", "4")
	sees(t, seen, ended, "4")
	ctl(t, c, "put", "/hostler/nodes/other", "x")
	revision := revision(t, c)
	ctl(t, c, "compact", revision)
	ctl(t, c, "defrag")
	ctl(t, c, "del", "/hostler/nodes/n")
	sees(t, seen, ended, "")
	if _, err := s.Put(patient(t), node, objects.Put{Value: []byte("5"), Instead: second}); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("Put() instead of what is gone = %v, want a conflict", err)
	}
}

// revision returns the store's revision.
func revision(t *testing.T, c *bed.Cluster) string {
	t.Helper()
	for line := range strings.Lines(ctl(t, c, "get", "/", "--write-out=fields")) {
		if value, found := strings.CutPrefix(line, `"Revision" :`); found {
			return strings.TrimSpace(value)
		}
	}
	t.Fatal("etcdctl get prints no revision")
	return ""
}
