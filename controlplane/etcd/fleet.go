package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// pingTime bounds a Ping.
const pingTime = 2 * time.Second

// Fleet is an etcd cluster as the store of the server role. Elections and Ping have their own
// connection: large objects do not delay them, and if one of their calls fails and ends the
// connection, no Follow has to list again.
type Fleet struct {
	o                Options
	dialer, election *dialer
}

var _ store.Store = (*Fleet)(nil)

// NewFleet returns a Fleet that is not connected yet. It returns an error for invalid Options.
func NewFleet(o Options) (*Fleet, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Fleet{o: o, dialer: newDialer(o), election: newDialer(o)}, nil
}

// Type returns "etcd".
func (f *Fleet) Type() string { return Type }

// Endpoint returns the URL of the member that is connected, or else of the one that is tried first.
func (f *Fleet) Endpoint() string { return f.dialer.endpoint() }

// EndsLeases returns true: agents bind each Lease to an etcd lease.
func (f *Fleet) EndsLeases() bool { return true }

// Close closes all connections. Terms end by themselves.
func (f *Fleet) Close() error {
	f.dialer.Close()
	f.election.Close()
	return nil
}

// Ping reads the number of keys with a name that no object has. The majority has to confirm it.
func (f *Fleet) Ping(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ping %s: %w", f.election.endpoint(), context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTime, controlplane.ErrNoAnswer)
	defer cancel()
	path := f.folder(store.Nodes)
	return f.election.call(ctx, call{operation: "ping", object: f.election.endpoint(), right: "read", path: path, all: f.rights, role: serverRole}, func(ctx context.Context, c *conn) error {
		_, err := c.kv.Get(ctx, path, clientv3.WithCountOnly())
		return err
	})
}

// folder is the prefix of a kind's paths: PREFIX/nodes/, PREFIX/leases/ or PREFIX/objects/KIND/.
func (f *Fleet) folder(kind store.Kind) string {
	if kind.Name == store.Nodes.Name || kind.Name == store.Leases.Name {
		return f.o.Prefix + "/" + kind.Name + "/"
	}
	return f.o.Prefix + "/objects/" + kind.Name + "/"
}

// on describes a call on a path.
func (f *Fleet) on(operation, right, path string) call {
	return call{operation: operation, object: strings.Trim(strings.TrimPrefix(path, f.o.Prefix), "/"), right: right, path: path, all: f.rights, role: serverRole}
}

// rights returns the rights that a server needs.
func (f *Fleet) rights() []right {
	return []right{
		{"write", f.folder(store.Nodes)},
		{"read", f.folder(store.Leases)},
		{"write", f.folder(store.Pods(true))},
		{"write", f.o.Prefix + "/elections/"},
		{"write", f.o.Prefix + settingsFolder},
	}
}

// Get reads an object from the majority.
func (f *Fleet) Get(ctx context.Context, kind store.Kind, name string) (store.Object, error) {
	var stored store.Object
	err := f.call(ctx, "get", "read", kind, name, func(ctx context.Context, c *conn, path string) error {
		cluster, kv, err := c.read(ctx, path)
		if err == nil {
			stored, err = read(kind, name, cluster, kv)
		}
		return err
	})
	return stored, err
}

// Update reads an object and stores the change over the same connection, which ends with its server.
// So revisions that a restored backup uses again are not mistaken for those that were read.
func (f *Fleet) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	var stored store.Object
	var refusal error // of edit
	err := f.call(ctx, "update", "write", kind, name, func(ctx context.Context, c *conn, path string) error {
		cluster, kv, err := c.read(ctx, path)
		if err != nil {
			return err
		}
		if stored, err = read(kind, name, cluster, kv); err != nil {
			return err
		}
		if err := pre.Check(stored); err != nil {
			return err
		}
		value, err := kind.Edit(stored, kv.Value, func(o store.Object) error {
			refusal = edit(o)
			return refusal
		})
		if err != nil || value == nil {
			if refusal != nil {
				return nil // the connection is not to blame
			}
			return err
		}
		// What an agent has bound to an etcd lease ends as before.
		revision, err := f.swap(ctx, c, unchanged(path, kv), pre.Term, clientv3.OpPut(path, string(value), clientv3.WithIgnoreLease()))
		if err != nil {
			return err
		}
		stored, err = read(kind, name, cluster, &mvccpb.KeyValue{CreateRevision: kv.CreateRevision, ModRevision: revision, Value: value})
		return err
	})
	if refusal != nil {
		return nil, refusal
	}
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// Delete removes an object as it was read. One that cannot be read has no UID to compare.
func (f *Fleet) Delete(ctx context.Context, kind store.Kind, name string, pre store.Preconditions) error {
	return f.call(ctx, "delete", "write", kind, name, func(ctx context.Context, c *conn, path string) error {
		cluster, kv, err := c.read(ctx, path)
		if err != nil {
			return err
		}
		if pre.UID != "" || pre.Version != "" {
			stored, err := read(kind, name, cluster, kv)
			if err != nil {
				return err
			}
			if err := pre.Check(stored); err != nil {
				return err
			}
		}
		_, err = f.swap(ctx, c, unchanged(path, kv), pre.Term, clientv3.OpDelete(path))
		return err
	})
}

// call makes a call on an object.
func (f *Fleet) call(ctx context.Context, operation, right string, kind store.Kind, name string, request func(ctx context.Context, c *conn, path string) error) error {
	if err := kind.CheckCall(ctx, operation+" "+kind.Name, name); err != nil {
		return err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	path := f.folder(kind) + name
	return f.dialer.call(ctx, f.on(operation, right, path), func(ctx context.Context, c *conn) error { return request(ctx, c, path) })
}

// read returns the stored object and the ID of the cluster; ErrNotFound.
func (c *conn) read(ctx context.Context, path string) (cluster uint64, kv *mvccpb.KeyValue, err error) {
	answer, err := c.kv.Get(ctx, path)
	switch {
	case err != nil:
		return 0, nil, err
	case len(answer.Kvs) == 0:
		return 0, nil, controlplane.ErrNotFound
	}
	return answer.Header.ClusterId, answer.Kvs[0], nil
}

// read decodes an object.
func read(kind store.Kind, name string, cluster uint64, kv *mvccpb.KeyValue) (store.Object, error) {
	left := controlplane.MostValues
	o, err := kind.Decode(name, kv.Value, versionOf(cluster, kv).String(), &left)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	return o, nil
}

// unchanged are the comparisons that fail once a key has changed since it was read.
func unchanged(path string, kv *mvccpb.KeyValue) []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(path), "=", kv.CreateRevision),
		clientv3.Compare(clientv3.ModRevision(path), "=", kv.ModRevision),
	}
}

// swap does something if the comparisons hold and the term, if there is one, has not ended. It returns
// the revision of that: else ErrConflict or ErrDeposed, and nothing has changed.
func (f *Fleet) swap(ctx context.Context, c *conn, compare []clientv3.Cmp, of store.Term, then ...clientv3.Op) (int64, error) {
	var held term
	var otherwise []clientv3.Op
	if of != (store.Term{}) {
		var err error
		if held, err = f.parse(of); err != nil {
			return 0, err
		}
		compare = append(compare, held.holds()...)
		otherwise = append(otherwise, clientv3.OpGet(held.path))
	}
	answer, err := c.kv.Txn(ctx).If(compare...).Then(then...).Else(otherwise...).Commit()
	switch {
	case err != nil:
		return 0, err
	case answer.Succeeded:
		return answer.Header.Revision, nil
	case len(otherwise) > 0 && len(answer.Responses) > 0 && !held.is(answer.Responses[0].GetResponseRange().GetKvs()):
		return 0, store.ErrDeposed
	}
	return 0, fmt.Errorf("%w: another client has changed or deleted it", controlplane.ErrConflict)
}
