package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

const (
	// mostAbsent bounds how many absent objects are remembered.
	mostAbsent = 10_000
	// mostChecked is how many objects of a kind are read to see whether one has changed.
	mostChecked = 500
)

// seen is what was read of the server once and stays true.
type seen struct {
	mu     sync.Mutex             // guards absent
	absent map[types.UID]struct{} // a UID is not used again

	checking sync.Mutex       // guards checked; held while kinds are read
	checked  map[string]check // by kind
}

// check says that no object of a kind had changed from one version to another.
type check struct{ from, to string }

// confirm returns ErrConflict unless the Preconditions about other objects are met for an object of a
// version. Kubernetes cannot compare them in the write itself. So an owner that is created meanwhile has
// another UID, and a dependent that is created meanwhile is seen if that was before the version.
func (f *Fleet) confirm(ctx context.Context, pre store.Preconditions, version string) error {
	for _, o := range pre.Absent {
		if err := f.confirmAbsent(ctx, o); err != nil {
			return err
		}
	}
	for _, p := range pre.Unchanged {
		if order, err := resourceversion.CompareResourceVersion(p.Version, version); err == nil && order >= 0 {
			continue
		}
		if err := f.confirmUnchanged(ctx, p, version); err != nil {
			return err
		}
	}
	return nil
}

// confirmAbsent returns ErrConflict if an object exists.
func (f *Fleet) confirmAbsent(ctx context.Context, o store.Reference) error {
	f.seen.mu.Lock()
	_, known := f.seen.absent[o.UID]
	f.seen.mu.Unlock()
	if known {
		return nil
	}
	found, err := f.get(ctx, "get "+o.Kind.Key(o.Name), o.Kind.Metadata(), o.Name)
	switch {
	case err == nil && found.GetUID() == o.UID:
		return fmt.Errorf("%w: %s exists", controlplane.ErrConflict, o.Kind.Key(o.Name))
	case err != nil && !errors.Is(err, controlplane.ErrNotFound):
		return err
	}
	f.seen.mu.Lock()
	defer f.seen.mu.Unlock()
	if len(f.seen.absent) >= mostAbsent {
		clear(f.seen.absent)
	}
	f.seen.absent[o.UID] = struct{}{}
	return nil
}

// confirmUnchanged returns ErrConflict if an object of a kind has changed after the position, and before
// now. A watch reports nothing of a kind that rests for a minute, so the kind is listed.
func (f *Fleet) confirmUnchanged(ctx context.Context, p store.Position, version string) error {
	f.seen.checking.Lock()
	defer f.seen.checking.Unlock()
	if done, known := f.seen.checked[p.Kind.Name]; known && !newer(done.from, p.Version) && !newer(version, done.to) {
		return nil
	}
	operation, page := "list "+p.Kind.Name, &metav1.PartialObjectMetadataList{}
	group, err := f.group(p.Kind)
	if err == nil {
		err = f.client.pageOf(ctx, operation, group, "", mostChecked, page, func(r rest.Interface) *rest.Request {
			return of(p.Kind.Metadata(), r.Get(), "PartialObjectMetadataList")
		})
	}
	if err != nil {
		return err
	}
	for i := range page.Items {
		if newer(page.Items[i].ResourceVersion, p.Version) {
			return fmt.Errorf("%s: %w: %s has changed", operation, controlplane.ErrConflict, page.Items[i].Name)
		}
	}
	if page.Continue != "" {
		return fmt.Errorf("%s: %w: there are more than %d; the watch has not reached version %s yet", operation, controlplane.ErrConflict, mostChecked, version)
	}
	f.seen.checked[p.Kind.Name] = check{p.Version, page.ResourceVersion}
	return nil
}

// newer reports whether a version is newer than another, or may be.
func newer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}
