package kubernetes

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// Create posts an object.
func (f *Fleet) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	name := kind.StoredName(o)
	ctx, cancel, operation, err := startCall(ctx, "create", kind, name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if metadataOnly(kind) || kind.NameOf != nil {
		return nil, fmt.Errorf("%s: %w: only whole objects whose kind has one namespace are created", operation, controlplane.ErrInvalid)
	}
	next := o.DeepCopyObject().(store.Object)
	next.SetNamespace(kind.Namespace)
	next.SetUID("")
	next.SetResourceVersion("")
	return f.requestObject(ctx, operation, kind, target{name: name}, func(r rest.Interface) *rest.Request {
		return of(kind, r.Post(), "PartialObjectMetadata").Body(next)
	})
}
