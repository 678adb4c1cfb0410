package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/store"
)

// VersionOf returns the version of a value that a cluster has stored at these revisions.
func VersionOf(cluster uint64, create, mod int64, value string) objects.Version {
	kv := &mvccpb.KeyValue{CreateRevision: create, ModRevision: mod, Value: []byte(value)}
	return objects.Version(versionOf(cluster, kv).String())
}

// Reads reports whether a text is a version.
func Reads(text objects.Version) bool {
	_, ok := parseVersion(text)
	return ok
}

// Path returns the key of an object.
func (s *Store) Path(key objects.Key) string { return s.path(key) }

// KeyAt returns the object of a path.
func (s *Store) KeyAt(path string) (objects.Key, bool) { return s.keyAt(path) }

// Fault returns the error of a call on nodes/n that failed with err.
func (s *Store) Fault(err error) error {
	return s.o.fault(context.Background(), s.on("put", objects.Key{Kind: objects.Node, Node: "n"}, "write"), s.o.Endpoints[0], err)
}

// ReadyTimeout returns how long to wait until an endpoint serves requests.
func (o Options) ReadyTimeout() time.Duration { return o.readyTimeout() }

// MustRedial reports whether a connection is replaced after an error.
func MustRedial(err error) bool { return mustRedial(err) }

// FleetFault returns the error of a server that may not read the Nodes.
func FleetFault(f *Fleet, err error) error {
	return f.o.fault(context.Background(), f.on("list", "read", f.folder(store.Nodes)), f.o.Endpoints[0], err)
}
