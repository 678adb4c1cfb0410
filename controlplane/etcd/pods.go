package etcd

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/sanitize"
)

// Pods stores the Pod objects of one Node at PREFIX/objects/pods/NODE/NAMESPACE/NAME. It is safe for
// concurrent use.
type Pods struct {
	s            *Store
	node, folder string
}

// Pods returns the store of a Node's Pod objects. It uses the connection of s.
func (s *Store) Pods(node string) *Pods { return &Pods{s, node, s.podFolder(node)} }

// podFolder returns the prefix of the paths of a Node's Pod objects.
func (s *Store) podFolder(node string) string { return s.o.Prefix + "/objects/pods/" + node + "/" }

// on describes a call on a path below the folder.
func (p *Pods) on(operation, verb, path string) call {
	return call{
		operation: operation, object: sanitize.Line(strings.Trim(strings.TrimPrefix(p.folder+path, p.s.o.Prefix), "/"), sanitize.MaxText),
		right: verb, path: p.folder + path, role: hostRole(p.node), all: func() []right { return podRights(p.folder) },
	}
}

// List reads a page of the objects. Each page shows the objects at the time of its read.
func (p *Pods) List(ctx context.Context, page string) (controlplane.PodPage, error) {
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	begin := p.folder
	if page != "" {
		begin = p.folder + page + "\x00"
	}
	var list controlplane.PodPage
	err := p.s.dialer.call(ctx, p.on("list", "read", ""), func(ctx context.Context, c *conn) error {
		answer, err := c.page(ctx, p.folder, begin)
		if err != nil {
			return err
		}
		list = controlplane.PodPage{Connection: c.number}
		for _, kv := range answer.Kvs {
			list.Pods = append(list.Pods, p.stored(c, strings.TrimPrefix(string(kv.Key), p.folder), kv))
		}
		if answer.More && len(list.Pods) > 0 {
			list.Next = list.Pods[len(list.Pods)-1].Path
		}
		return nil
	})
	if err != nil {
		return controlplane.PodPage{}, err
	}
	return list, nil
}

// Put stores an object if the stored version is still instead. It returns the object that is stored
// afterwards. With ErrConflict, nothing was changed.
func (p *Pods) Put(ctx context.Context, path string, value []byte, instead controlplane.PodVersion) (controlplane.StoredPod, error) {
	return p.swap(ctx, p.on("put", "write", path), path, instead, clientv3.OpPut(p.folder+path, string(value)), value)
}

// Delete removes an object if it has that version. With ErrConflict, it returns the stored object,
// and nothing was changed.
func (p *Pods) Delete(ctx context.Context, path string, version controlplane.PodVersion) (controlplane.StoredPod, error) {
	return p.swap(ctx, p.on("delete", "write", path), path, version, clientv3.OpDelete(p.folder+path), nil)
}

// Current reports whether a connection is still in use. If it is not, the stored objects may be
// those of a restored backup.
func (p *Pods) Current(connection int64) bool {
	c := p.s.dialer.Current()
	return c != nil && c.number == connection
}

// swap executes then if the object has a version. After a restored backup, revisions are used
// again. So a version is only compared over the connection that it was read over, which ends when
// its server does.
func (p *Pods) swap(ctx context.Context, what call, path string, before controlplane.PodVersion, then clientv3.Op, value []byte) (controlplane.StoredPod, error) {
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	after := controlplane.StoredPod{Path: path}
	key := p.folder + path
	err := p.s.dialer.call(ctx, what, func(ctx context.Context, c *conn) error {
		after = controlplane.StoredPod{Path: path}
		compare := []clientv3.Cmp{
			clientv3.Compare(clientv3.CreateRevision(key), "=", before.Create),
			clientv3.Compare(clientv3.ModRevision(key), "=", before.Mod),
		}
		if before != (controlplane.PodVersion{}) && before.Connection != c.number {
			compare = []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "<", 0)} // never true, so the object is read again
		}
		answer, err := c.kv.Txn(ctx).If(compare...).Then(then).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return err
		}
		if answer.Succeeded {
			if value != nil {
				after.Value = value
				after.Version = controlplane.PodVersion{Connection: c.number, Create: before.Create, Mod: answer.Header.Revision}
				if before.Create == 0 {
					after.Version.Create = answer.Header.Revision
				}
			}
			return nil
		}
		if found := answer.Responses[0].GetResponseRange().GetKvs(); len(found) > 0 {
			after = p.stored(c, path, found[0])
		}
		return fmt.Errorf("%w: another client has changed or deleted it", controlplane.ErrConflict)
	})
	return after, err
}

// stored returns the object of a key that was read over a connection.
func (p *Pods) stored(c *conn, path string, kv *mvccpb.KeyValue) controlplane.StoredPod {
	return controlplane.StoredPod{
		Path: path, Value: kv.Value,
		Version: controlplane.PodVersion{Connection: c.number, Create: kv.CreateRevision, Mod: kv.ModRevision},
	}
}
