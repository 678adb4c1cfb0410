package etcd_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
)

// open returns a store of an endpoint that does not need to serve.
func open(t testing.TB, change ...func(*etcd.Options)) *etcd.Store {
	t.Helper()
	o := etcd.Options{Endpoints: []string{"http://127.0.0.1:1"}, Prefix: "/hostler", Version: "test"}
	for _, c := range change {
		c(&o)
	}
	store, err := etcd.New(o)
	if err != nil {
		t.Fatalf("New() = %v, want no error", err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("Close() = %v, want no error", err)
		}
	})
	return store
}

func TestTheLayoutIsAPromise(t *testing.T) {
	store := open(t)
	for path, key := range map[string]objects.Key{
		"/hostler/nodes/rack1-node1":                  {Kind: objects.Node, Node: "rack1-node1"},
		"/hostler/leases/rack1-node1":                 {Kind: objects.Lease, Node: "rack1-node1"},
		"/hostler/events/rack1-node1/rack1-node1.17a": {Kind: objects.Event, Node: "rack1-node1", Name: "rack1-node1.17a"},
	} {
		if got := store.Path(key); got != path {
			t.Errorf("the path of %v = %s, want %s", key, got, path)
		}
		if got, ok := store.KeyAt(path); !ok || got != key {
			t.Errorf("the key at %s = %v, %t, want %v", path, got, ok, key)
		}
	}
	for _, path := range []string{
		"", "/", "/hostler", "/hostler/nodes", "/hostler/nodes/", "/hostler/nodes/a/b", "/hostler/pods/a", "/hostlers/nodes/a",
		"/hostler/events/a", "/hostler/events/a/", "/hostler/events//b", "/hostler/events/a/b/c",
	} {
		if got, ok := store.KeyAt(path); ok {
			t.Errorf("the key at %s = %v, want it to be nobody's", path, got)
		}
	}
}

func FuzzKeysAreWhereTheirPathsAre(f *testing.F) {
	for _, seed := range []string{"/hostler/nodes/n", "/hostler/leases/n", "/hostler/events/n/e", "/hostler/events/n/", "/hostler//"} {
		f.Add(seed)
	}
	store := open(f)
	f.Fuzz(func(t *testing.T, path string) {
		if key, ok := store.KeyAt(path); ok && store.Path(key) != path {
			t.Errorf("the path of the key at %q = %q, want the same", path, store.Path(key))
		}
	})
}

func TestNoTwoStatesShareAVersion(t *testing.T) {
	seen := map[objects.Version]string{}
	for name, v := range map[string]objects.Version{
		"as it was created":             etcd.VersionOf(1, 5, 5, "a"),
		"as it was changed":             etcd.VersionOf(1, 5, 6, "b"),
		"as it was created again":       etcd.VersionOf(1, 6, 6, "b"),
		"in another cluster":            etcd.VersionOf(2, 5, 5, "a"),
		"at a revision that came again": etcd.VersionOf(1, 5, 6, "c"),
	} {
		if other, taken := seen[v]; taken {
			t.Errorf("the version %s = %s, want another one than %s", name, v, other)
		}
		if seen[v] = name; !etcd.Reads(v) {
			t.Errorf("the version %s = %s, want one that can be read", name, v)
		}
	}
}

func FuzzAVersionIsReadAsItIsWritten(f *testing.F) {
	for _, seed := range []string{"", "1", string(etcd.VersionOf(1, 5, 6, "a")), "-1-2-3-4", "0000000000000001-+5-6-0000000000000001"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if etcd.Reads(objects.Version(text)) && strings.ContainsAny(text, " +\n") {
			t.Errorf("%q is read as a version, want only what is written", text)
		}
	})
}
