package etcd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// pingTime limits a Ping.
const pingTime = 2 * time.Second

// Fleet is an etcd cluster as the store of the server role. Elections and Ping have their own
// connection. So large objects do not delay them, and if one of their calls fails and closes the
// connection, no Follow has to list again.
type Fleet struct {
	o                Options
	dialer, election *dialer
	newest           newest
	sightings        store.Sightings
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

// Endpoint returns the URL of the connected member, or of the endpoint that is tried first.
func (f *Fleet) Endpoint() string { return f.dialer.endpoint() }

// EndsLeases returns true: agents bind each Lease to an etcd lease.
func (f *Fleet) EndsLeases() bool { return true }

// Close closes all connections. Terms end by themselves.
func (f *Fleet) Close() error {
	f.dialer.Close()
	f.election.Close()
	return nil
}

// folder returns the prefix of a kind's paths.
func (f *Fleet) folder(kind store.Kind) string { return f.o.Prefix + "/" + kind.Folder() }

// on describes a call on a path.
func (f *Fleet) on(operation, right, path string) call {
	return call{operation: operation, object: strings.Trim(strings.TrimPrefix(path, f.o.Prefix), "/"), right: right, path: path, all: f.rights, role: serverRole}
}

// rights returns the rights that a server needs.
func (f *Fleet) rights() []right {
	return []right{
		{"write", f.folder(store.Nodes)},
		{"write", f.folder(store.Leases)},
		{"write", f.folder(store.Events)},
		{"write", f.folder(store.Objects)},
		{"write", f.o.Prefix + "/elections/"},
		{"write", f.o.Prefix + "/" + store.Slots + "/"},
		{"write", f.o.Prefix + settingsFolder},
	}
}

// Get reads an object, confirmed by the majority.
func (f *Fleet) Get(ctx context.Context, kind store.Kind, name string) (store.Object, error) {
	var stored store.Object
	err := f.call(ctx, "get", "read", kind, name, func(ctx context.Context, c *conn, path string) error {
		header, kv, err := c.read(ctx, path)
		if tooLarge(err) { // unreadable, in this version
			header, kv, err = c.read(ctx, path, clientv3.WithKeysOnly())
		}
		if err == nil {
			stored, err = read(kind, name, header.ClusterId, kv)
		}
		return err
	})
	return stored, err
}

// Update reads an object and stores the change over the same connection, which ends when its server
// does. After a restored backup, revisions are used again, but not over the same connection.
func (f *Fleet) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	var stored store.Object
	var refusal error // error of edit
	err := f.call(ctx, "update", "write", kind, name, func(ctx context.Context, c *conn, path string) error {
		header, kv, others, err := f.readAll(ctx, c, path, pre.Others)
		if err != nil {
			return err
		}
		if stored, err = read(kind, name, header.ClusterId, kv); err != nil {
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
				return nil // not an error of the connection
			}
			return err
		}
		changed := &mvccpb.KeyValue{CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Value: value, Lease: kv.Lease}
		after, err := read(kind, name, header.ClusterId, changed)
		if err != nil {
			return err
		}
		then := replace(path, value)
		if store.Released(stored, after) {
			then = clientv3.OpDelete(path)
		}
		if changed.ModRevision, err = f.write(ctx, c, path, kv, header.Revision, pre, others, then); err != nil {
			return err
		}
		after.SetResourceVersion(versionOf(header.ClusterId, changed).String())
		stored = after
		return nil
	})
	if refusal != nil {
		return nil, refusal
	}
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// Delete removes an object if it has not changed since it was read, or requests its deletion. An
// unreadable object has neither UID nor finalizers, and is removed.
func (f *Fleet) Delete(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, policy metav1.DeletionPropagation) error {
	return f.call(ctx, "delete", "write", kind, name, func(ctx context.Context, c *conn, path string) error {
		header, kv, others, err := f.readAll(ctx, c, path, pre.Others)
		if err != nil {
			return err
		}
		then := clientv3.OpDelete(path)
		stored, err := read(kind, name, header.ClusterId, kv)
		if err != nil && (pre.UID != "" || pre.Version != "" || policy != "") {
			return err
		}
		if err == nil {
			if err := pre.Check(stored); err != nil {
				return err
			}
			remove := false
			value, err := kind.Edit(stored, kv.Value, func(o store.Object) error {
				remove = store.RequestDeletion(o, policy, metav1.NewTime(time.Now()).Rfc3339Copy())
				return nil
			})
			switch {
			case err != nil:
				return err
			case !remove && value == nil: // its deletion was requested before
				return nil
			case !remove:
				then = replace(path, value)
			}
		}
		_, err = f.write(ctx, c, path, kv, header.Revision, pre, others, then)
		return err
	})
}

// replace stores a value and keeps the etcd lease that an agent has attached to the key.
func replace(path string, value []byte) clientv3.Op {
	return clientv3.OpPut(path, string(value), clientv3.WithIgnoreLease())
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

// read returns the stored object and the state of the cluster; ErrNotFound.
func (c *conn) read(ctx context.Context, path string, options ...clientv3.OpOption) (*etcdserverpb.ResponseHeader, *mvccpb.KeyValue, error) {
	answer, err := c.kv.Get(ctx, path, options...)
	switch {
	case err != nil:
		return nil, nil, err
	case len(answer.Kvs) == 0:
		return nil, nil, controlplane.ErrNotFound
	}
	return answer.Header, answer.Kvs[0], nil
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

// unchanged returns the comparisons that fail once a key has changed since it was read.
func unchanged(path string, kv *mvccpb.KeyValue) []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(path), "=", kv.CreateRevision),
		clientv3.Compare(clientv3.ModRevision(path), "=", kv.ModRevision),
	}
}

// write executes then if the object and others have not changed since they were read at a revision,
// and the Preconditions are met. It returns the new revision.
func (f *Fleet) write(ctx context.Context, c *conn, path string, kv *mvccpb.KeyValue, at int64, pre store.Preconditions, others []clientv3.Cmp, then clientv3.Op) (int64, error) {
	ranges := map[store.Range]int64{}
	for _, p := range pre.Unchanged {
		revision, err := since(p, at)
		if err != nil {
			return 0, err
		}
		for _, r := range p.Ranges() {
			r.Begin, r.End = f.o.Prefix+"/"+r.Begin, f.o.Prefix+"/"+r.End
			if r.Hosts && p.ByPeople { // the folder of one host is small
				others = append(others, unchangedSince(r, revision))
			} else {
				ranges[r] = revision
			}
		}
	}
	return f.swap(ctx, c, ranges, slices.Concat(others, unchanged(path, kv)), pre.Term, then)
}

// unchangedSince returns the comparison that fails once a key in a range has changed after a revision.
func unchangedSince(r store.Range, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(r.Begin), "<", revision+1).WithRange(r.End)
}

// errChanged is the error if nothing was written.
var errChanged = fmt.Errorf("%w: another client has changed or deleted it", controlplane.ErrConflict)

// swap executes then if no key of the ranges has changed after its revision, the comparisons hold,
// and the term, if given, has not ended. It returns the new revision. With ErrConflict or
// ErrDeposed, nothing was changed.
func (f *Fleet) swap(ctx context.Context, c *conn, ranges map[store.Range]int64, compare []clientv3.Cmp, of store.Term, then ...clientv3.Op) (int64, error) {
	held := f.termOf(of)
	var otherwise []clientv3.Op
	if of != (store.Term{}) {
		compare = append(compare, held.comparison())
		otherwise = append(otherwise, clientv3.OpGet(held.path))
	}
	var answer *clientv3.TxnResponse
	var err error
	if len(ranges) > 0 {
		answer, err = c.commit(ctx, ranges, compare, then, otherwise)
	} else {
		answer, err = c.kv.Txn(ctx).If(compare...).Then(then...).Else(otherwise...).Commit()
	}
	switch {
	case err != nil:
		return 0, err
	case answer.Succeeded:
		return answer.Header.Revision, nil
	case len(otherwise) > 0 && !held.matches(answer.Responses[0].GetResponseRange().GetKvs()):
		return 0, store.ErrDeposed
	}
	return 0, errChanged
}

// since returns the revision of a position. After a restored backup, the cluster may not have
// reached it: ErrConflict.
func since(p store.Position, now int64) (int64, error) {
	revision, err := strconv.ParseInt(p.Version, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: position %q of %s does not belong to this store", controlplane.ErrInvalid, p.Version, p.Kind.Name)
	}
	if revision > now {
		return 0, fmt.Errorf("%w: the store is at revision %d, before %d", controlplane.ErrConflict, now, revision)
	}
	return revision, nil
}

// readAll reads an object as read does, and the other objects at the same revision. It returns
// comparisons that fail once the others have changed. Errors: ErrConflict if one is not in its
// state now; UnreadableError if more than its version is required, and it cannot be read.
func (f *Fleet) readAll(ctx context.Context, c *conn, path string, others []store.Reference) (*etcdserverpb.ResponseHeader, *mvccpb.KeyValue, []clientv3.Cmp, error) {
	if len(others) == 0 {
		header, kv, err := c.read(ctx, path)
		return header, kv, nil, err
	}
	if len(others) > store.MostOthers {
		return nil, nil, nil, fmt.Errorf("%w: the state of %d other objects is required, more than %d", controlplane.ErrInvalid, len(others), store.MostOthers)
	}
	get := func(options ...clientv3.OpOption) (*clientv3.TxnResponse, error) {
		gets := []clientv3.Op{clientv3.OpGet(path)}
		for _, o := range others {
			gets = append(gets, clientv3.OpGet(f.folder(o.Kind)+o.Name, options...))
		}
		return c.kv.Txn(ctx).Then(gets...).Commit()
	}
	answer, err := get()
	if tooLarge(err) {
		answer, err = get(clientv3.WithKeysOnly())
	}
	if err != nil {
		return nil, nil, nil, err
	}
	found := func(i int) *mvccpb.KeyValue {
		if kvs := answer.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			return kvs[0]
		}
		return nil
	}
	if found(0) == nil {
		return nil, nil, nil, controlplane.ErrNotFound
	}
	var compare []clientv3.Cmp
	for i, o := range others {
		kv, other, err := found(i+1), store.Object(nil), error(nil)
		if kv != nil {
			other, err = read(o.Kind.Metadata(), o.Name, answer.Header.ClusterId, kv)
		} else {
			kv = &mvccpb.KeyValue{}
		}
		if err := o.Check(other, err); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", o.Kind.Key(o.Name), err)
		}
		compare = append(compare, unchanged(f.folder(o.Kind)+o.Name, kv)...)
	}
	return answer.Header, found(0), compare, nil
}
