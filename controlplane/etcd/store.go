package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd/endpoint"
	"hostler.io/hostler/controlplane/objects"
)

// Type is the control plane's name in the configuration.
const Type = "etcd"

const (
	// callTimeout limits a call whose caller sets no deadline.
	callTimeout = 10 * time.Second
	// leaseTimeout limits calls on the Lease: a fifth of its default duration of 40 s.
	leaseTimeout = 8 * time.Second
)

// Options has the endpoints of the cluster and the credentials.
type Options struct {
	// Endpoints are the members' URLs, as endpoint.Check allows. One of them is used at a time. If it
	// does not answer, another one is used.
	Endpoints []string
	// Prefix begins all keys, as endpoint.CheckPrefix allows.
	Prefix string
	// CA is the file with the authorities of the servers' certificates; empty for the host's
	// authorities. Certificate and Key are the client's, both or none. All are read again for each
	// connection.
	CA, Certificate, Key string
	// Username and PasswordFile, both or none, are for a cluster with auth. The file is read again for
	// each connection; white space around the password is removed.
	Username, PasswordFile string
	// Section is where these options are in the configuration, for hints: "controlPlane.etcd" if empty.
	Section string
	// Insecure allows plain http to other hosts.
	Insecure bool
	// Version is hostler's own, for the user agent.
	Version string
	// Node is the name of this host, for hints; empty for a server.
	Node string
	// Pods says that this host stores Pod objects and needs rights for them.
	Pods bool
}

// OptionsOf returns the Options of a configuration.
func OptionsOf(c endpoint.Config, section, version string) Options {
	return Options{
		Endpoints: c.Endpoints, Prefix: c.Prefix,
		CA: c.TLS.CA, Certificate: c.TLS.Certificate, Key: c.TLS.Key,
		Username: c.Username, PasswordFile: c.PasswordFile, Insecure: c.Insecure,
		Section: section, Version: version,
	}
}

// key returns the name of a key in the configuration.
func (o Options) key(name string) string {
	return strings.TrimSuffix(cmp.Or(o.Section, "controlPlane.etcd")+"."+name, ".")
}

// Store is an etcd cluster as an objects.Store.
type Store struct {
	o      Options
	dialer *dialer
	leases leases
}

var _ objects.Store = (*Store)(nil)

// New returns a store that is not connected yet. It returns an error for invalid Options.
func New(o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Store{o: o, dialer: newDialer(o), leases: newLeases()}, nil
}

// Type returns "etcd".
func (s *Store) Type() string { return Type }

// Endpoint returns the URL of the connected member, or of the endpoint that is tried first.
func (s *Store) Endpoint() string { return s.dialer.endpoint() }

// Close closes all connections. It does not revoke etcd leases: that could delete keys that another
// process has put since.
func (s *Store) Close() error {
	s.dialer.Close()
	return nil
}

// Reconnect makes the next calls use new connections. Calls in progress continue on their
// connection.
func (s *Store) Reconnect() { s.dialer.Reconnect() }

// bound adds a deadline to a call that has none.
func bound(ctx context.Context, kind objects.Kind) (context.Context, context.CancelFunc) {
	d := callTimeout
	if kind == objects.Lease {
		d = leaseTimeout
	}
	return controlplane.Bound(ctx, d)
}

// Get reads an object, confirmed by the majority.
func (s *Store) Get(ctx context.Context, key objects.Key) (objects.Object, error) {
	ctx, cancel := bound(ctx, key.Kind)
	defer cancel()
	object := objects.Object{}
	err := s.dialer.call(ctx, s.on("get", key, "read"), func(ctx context.Context, c *conn) error {
		stored, _, err := s.read(ctx, c, key)
		if object = stored; err == nil && stored.Version == objects.None {
			err = controlplane.ErrNotFound
		}
		return err
	})
	return object, err
}

// read returns the stored object and the revision of the read. If there is no object, its version
// is None.
func (s *Store) read(ctx context.Context, c *conn, key objects.Key) (objects.Object, int64, error) {
	answer, err := c.kv.Get(ctx, s.path(key))
	if err != nil {
		return objects.Object{Key: key}, 0, err
	}
	return c.learn(key, answer.Header, answer.Kvs), answer.Header.Revision, nil
}

// Put stores an object. The same transaction compares the version.
func (s *Store) Put(ctx context.Context, key objects.Key, put objects.Put) (objects.Version, error) {
	ctx, cancel := bound(ctx, key.Kind)
	defer cancel()
	var stored objects.Version
	err := s.dialer.call(ctx, s.on("put", key, "write"), func(ctx context.Context, c *conn) error {
		before, err := s.confirm(ctx, c, key, put.Instead)
		if err != nil {
			return err
		}
		stored, err = s.put(ctx, c, key, put, before)
		return err
	})
	return stored, err
}

// put is one attempt of Put. If the object's etcd lease has ended, or another host has attached an object to it so that
// this one may not use it, it gets another one. A Lease is then stored without: servers judge renewals only.
func (s *Store) put(ctx context.Context, c *conn, key objects.Key, put objects.Put, before version) (objects.Version, error) {
	for again := true; ; again = false {
		lease, err := s.leases.bind(ctx, c, key, put.TTL)
		if err != nil {
			return objects.None, err
		}
		then := clientv3.OpPut(s.path(key), string(put.Value), clientv3.WithLease(lease))
		answer, err := s.swap(ctx, c, key, &before, then)
		if taken := errors.Is(err, rpctypes.ErrPermissionDenied) && lease != clientv3.NoLease; again && (taken || errors.Is(err, rpctypes.ErrLeaseNotFound)) {
			s.leases.forget(lease)
			if taken && key.Kind == objects.Lease {
				put.TTL = 0
			}
			continue
		}
		if err != nil {
			return objects.None, err
		}
		after := version{cluster: answer.Header.ClusterId, create: before.create, mod: answer.Header.Revision, digest: digest(put.Value)}
		if before == (version{}) {
			after.create = after.mod
		}
		c.confirm(key, objects.Version(after.String()))
		return objects.Version(after.String()), nil
	}
}

// Delete removes an object. With a Node, it also removes the Lease.
func (s *Store) Delete(ctx context.Context, key objects.Key, v objects.Version) error {
	ctx, cancel := bound(ctx, key.Kind)
	defer cancel()
	then := []clientv3.Op{clientv3.OpDelete(s.path(key))}
	if key.Kind == objects.Node {
		lease := objects.Key{Kind: objects.Lease, Node: key.Node}
		then = append(then, clientv3.OpDelete(s.path(lease)))
		defer s.leases.drop(lease)
	}
	defer s.leases.drop(key)
	return s.dialer.call(ctx, s.on("delete", key, "write"), func(ctx context.Context, c *conn) error {
		if v == objects.None {
			_, err := s.swap(ctx, c, key, nil, then...)
			return err
		}
		before, err := s.confirm(ctx, c, key, v)
		if err != nil {
			return err
		}
		_, err = s.swap(ctx, c, key, &before, then...)
		return err
	})
}

// swap executes then if the state of an object is still before; nil for any state. Otherwise it
// returns *ConflictError.
func (s *Store) swap(ctx context.Context, c *conn, key objects.Key, before *version, then ...clientv3.Op) (*clientv3.TxnResponse, error) {
	path := s.path(key)
	var compare []clientv3.Cmp
	if before != nil {
		compare = []clientv3.Cmp{
			clientv3.Compare(clientv3.CreateRevision(path), "=", before.create),
			clientv3.Compare(clientv3.ModRevision(path), "=", before.mod),
		}
	}
	answer, err := c.kv.Txn(ctx).If(compare...).Then(then...).Else(clientv3.OpGet(path)).Commit()
	if err != nil {
		return nil, err
	}
	if !answer.Succeeded {
		return nil, conflict(c.learn(key, answer.Header, answer.Responses[0].GetResponseRange().GetKvs()))
	}
	return answer, nil
}

// confirm returns the revisions of a version, for the comparison in a transaction. After a restored
// backup, revisions can repeat. A connection ends when its server does, so versions that this
// connection has reported are valid. For any other version, the object is read again and compared
// as a whole.
func (s *Store) confirm(ctx context.Context, c *conn, key objects.Key, v objects.Version) (version, error) {
	if v == objects.None {
		return version{}, nil
	}
	if !c.knows(key, v) {
		stored, _, err := s.read(ctx, c, key)
		if err != nil {
			return version{}, err
		}
		if stored.Version != v {
			return version{}, conflict(stored)
		}
	}
	before, ok := parseVersion(v)
	if !ok {
		return version{}, fmt.Errorf("%w: version %q does not belong to this store", controlplane.ErrInvalid, v)
	}
	return before, nil
}

// conflict returns the error if an object has changed.
func conflict(stored objects.Object) error {
	what := "another client has changed it"
	if stored.Version == objects.None {
		what = "it no longer exists"
	}
	return &objects.ConflictError{Stored: stored, Err: fmt.Errorf("%w: %s", controlplane.ErrConflict, what)}
}

// objectOf returns the object in an answer about one key.
func objectOf(key objects.Key, header *etcdserverpb.ResponseHeader, found []*mvccpb.KeyValue) objects.Object {
	if len(found) == 0 {
		return objects.Object{Key: key}
	}
	return objects.Object{Key: key, Value: found[0].Value, Version: objects.Version(versionOf(header.ClusterId, found[0]).String())}
}
