package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/store"
)

// Create stores an object unless its key exists.
func (f *Fleet) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	next := o.DeepCopyObject().(store.Object)
	next.SetUID(objects.NewUID())
	next.SetCreationTimestamp(metav1.NewTime(time.Now()).Rfc3339Copy())
	name := kind.StoredName(next)
	var stored store.Object
	err := f.call(ctx, "create", "write", kind, name, func(ctx context.Context, c *conn, path string) error {
		value, err := kind.Encode(next)
		if err != nil {
			return err
		}
		answer, err := c.kv.Get(ctx, path, clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		revision, err := f.swap(ctx, c, nil, unchanged(path, &mvccpb.KeyValue{}), store.Term{}, clientv3.OpPut(path, string(value)))
		if err != nil {
			return err
		}
		stored, err = read(kind, name, answer.Header.ClusterId, &mvccpb.KeyValue{CreateRevision: revision, ModRevision: revision, Value: value})
		return err
	})
	return stored, err
}
