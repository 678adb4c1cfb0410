package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// Fleet is an API server as the store of the server role. Of the API groups core and
// coordination.k8s.io it has the whole objects; of all other groups only the metadata.
type Fleet struct {
	client *Client
	all    *apiGroup // for metadata of any group
	scheme *runtime.Scheme
	reads  readCache

	sightings store.Sightings

	mu     sync.Mutex         // guards the fields below
	terms  map[string]ownTerm // of this process, by token
	newest string             // resourceVersion of the last Ping; empty before the first
}

var _ store.Store = (*Fleet)(nil)

// NewFleet returns a Fleet that has not connected yet.
func NewFleet(o Options) (*Fleet, error) {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	client, err := New(o)
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	all := newGroup(client.o, corev1.SchemeGroupVersion)
	all.relayed = true
	return &Fleet{
		client: client, all: all, scheme: scheme, reads: readCache{others: map[reference]time.Time{}, merges: map[string]bool{}, checking: make(chan struct{}, 1), checked: map[string]check{}},
		terms: map[string]ownTerm{},
	}, nil
}

// Type returns "kubernetes".
func (f *Fleet) Type() string { return Type }

// Endpoint returns the server's URL, or the path of the credentials until they have been read.
func (f *Fleet) Endpoint() string { return f.client.Endpoint() }

// EndsLeases returns false.
func (f *Fleet) EndsLeases() bool { return false }

// Close closes all connections. Terms end by themselves.
func (f *Fleet) Close() error {
	f.all.Reconnect()
	return f.client.Close()
}

// PublishEvent does the same as Client.PublishEvent.
func (f *Fleet) PublishEvent(ctx context.Context, event *corev1.Event) error {
	return f.client.PublishEvent(ctx, event)
}

// group returns the API group of a kind; ErrInvalid.
func (f *Fleet) group(kind store.Kind) (*apiGroup, error) {
	if metadataOnly(kind) {
		return f.all, nil
	}
	switch kind.GVK.GroupVersion() {
	case corev1.SchemeGroupVersion:
		return f.client.core, nil
	case coordinationv1.SchemeGroupVersion:
		return f.client.others, nil
	}
	return nil, fmt.Errorf("%w: API group %s is not supported", controlplane.ErrInvalid, kind.GVK.GroupVersion())
}

// Get reads an object, confirmed by the majority.
func (f *Fleet) Get(ctx context.Context, kind store.Kind, name string) (store.Object, error) {
	ctx, cancel, operation, err := startCall(ctx, "get", kind, name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return f.get(ctx, operation, kind, name)
}

// startCall checks the arguments of a call on an object, and adds a deadline.
func startCall(ctx context.Context, operation string, kind store.Kind, name string) (bounded context.Context, cancel context.CancelFunc, on string, err error) {
	if err := kind.CheckCall(ctx, operation+" "+kind.Name, name); err != nil {
		return nil, nil, "", err
	}
	bounded, cancel = controlplane.Bound(ctx, callTimeout)
	return bounded, cancel, fmt.Sprintf("%s %s %q", operation, kind.Name, name), nil
}

func (f *Fleet) get(ctx context.Context, operation string, kind store.Kind, name string) (store.Object, error) {
	return f.requestObject(ctx, operation, kind, target{name: path.Base(name)}, func(r rest.Interface) *rest.Request { return at(kind, r.Get(), name) })
}

// requestObject makes a request that returns an object.
func (f *Fleet) requestObject(ctx context.Context, operation string, kind store.Kind, a target, request func(rest.Interface) *rest.Request) (store.Object, error) {
	group, err := f.group(kind)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	o := kind.New()
	err = f.client.ask(ctx, operation, group, request, o)
	if size, large := errors.AsType[*sizeError](err); large {
		return nil, fmt.Errorf("%s: %w: %w", operation, controlplane.ErrInvalid, unreadable(size.most, size.version))
	}
	if err == nil {
		err = f.client.answered(operation, a, o)
	}
	if err != nil {
		return nil, err
	}
	return read(kind, o), nil
}

// unreadable returns the error of an object that exceeds a limit.
func unreadable(most, version string) error {
	return &store.UnreadableError{Version: version, Cause: "it has more than " + most + ": reduce or delete it"}
}

// read returns an object without managedFields, which can be half of a Node and which no caller
// needs.
func read(kind store.Kind, o store.Object) store.Object {
	o.GetObjectKind().SetGroupVersionKind(kind.GVK)
	o.SetManagedFields(nil)
	return o
}

// Update reads an object and patches what edit changed, the status first. If the patch of the rest
// fails, the status stays stored.
func (f *Fleet) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	ctx, cancel, operation, err := startCall(ctx, "update", kind, name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	stored, err := f.get(ctx, operation, kind, name)
	if err != nil {
		return nil, err
	}
	if err := pre.Check(stored); err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	next := stored.DeepCopyObject().(store.Object)
	if err := edit(next); err != nil {
		return nil, err
	}
	patch, err := diff(stored, next)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	write := func(patch map[string]any, subresources ...string) (store.Object, error) {
		if err := f.confirm(ctx, name, pre, stored.GetResourceVersion()); err != nil {
			return nil, fmt.Errorf("%s: %w", operation, err)
		}
		return f.patch(ctx, operation, kind, stored, pre.Term, patch, subresources...)
	}
	if status, changed := patch["status"]; changed {
		delete(patch, "status")
		if stored, err = write(map[string]any{"status": status}, "status"); err != nil {
			return nil, err
		}
	}
	if len(patch) > 0 {
		return write(patch)
	}
	return stored, nil
}

// patch applies a patch to the stored object, or to subresources of it.
func (f *Fleet) patch(ctx context.Context, operation string, kind store.Kind, stored store.Object, term store.Term, patch map[string]any, subresources ...string) (store.Object, error) {
	text, err := under(stored, patch)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	ctx, cancel, err := f.within(ctx, term)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	defer cancel()
	return f.requestObject(ctx, operation, kind, target{stored.GetName(), stored.GetUID()}, func(r rest.Interface) *rest.Request {
		return at(kind, r.Patch(patchType(kind)), kind.StoredName(stored)).SubResource(subresources...).Body(text)
	})
}

// Delete removes an object. The server compares the Preconditions.
func (f *Fleet) Delete(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, policy metav1.DeletionPropagation) error {
	ctx, cancel, operation, err := startCall(ctx, "delete", kind, name)
	if err != nil {
		return err
	}
	defer cancel()
	group, err := f.group(kind)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if err := f.confirm(ctx, name, pre, pre.Version); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	ctx, stop, err := f.within(ctx, pre.Term)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	defer stop()
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}}
	if policy != "" {
		options.PropagationPolicy = &policy
	}
	if pre.UID != "" {
		options.Preconditions.UID = &pre.UID
	}
	if pre.Version != "" {
		options.Preconditions.ResourceVersion = &pre.Version
	}
	return f.client.ask(ctx, operation, group, func(r rest.Interface) *rest.Request {
		return at(kind, r.Delete(), name).Body(options)
	}, nil)
}
