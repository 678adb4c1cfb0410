package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

const (
	// mostOthers limits how many states of other objects are remembered.
	mostOthers = 10_000
	// confirmedFor is how long an object that was read counts as unchanged: the dependents of one owner
	// are written one after the other.
	confirmedFor = 500 * time.Millisecond
	// absentFor is how long a UID that was absent counts as absent, if all pings were answered meanwhile. The server
	// gives none twice. A backup that is restored brings objects back, but API servers do not answer meanwhile.
	absentFor = 10 * time.Second
	// mostChecked is the maximum number of objects of a kind that are listed to see whether one has
	// changed.
	mostChecked = 500
)

// readCache is the memory of reads that are still valid.
type readCache struct {
	mu        sync.Mutex              // guards the fields until checked
	forgotten time.Time               // when forget was last called: reads that began before it do not count
	others    map[reference]time.Time // when they were read
	merges    map[string]bool         // kinds without a strategic merge patch
	checked   map[string]check        // by kind

	reading  singleflight.Group // of others
	checking chan struct{}      // has one element while a kind is read
}

// reference is a store.Reference as a key.
type reference struct {
	kind, name string
	uid        types.UID
	version    string
	deletion   metav1.DeletionPropagation
}

// check records that no object of a kind changed between two versions.
type check struct{ from, to string }

// confirm returns ErrConflict unless the Preconditions about other objects are met, for a write to
// an object of that version. Kubernetes cannot compare them in the write itself. An owner that is
// created meanwhile has another UID. A dependent that is created meanwhile is seen if it was
// created before the version.
func (f *Fleet) confirm(ctx context.Context, name string, pre store.Preconditions, version string) error {
	for _, o := range pre.Others {
		if err := f.confirmOther(ctx, o); err != nil {
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
	for _, kind := range pre.Unlisted {
		namespace, _, _ := strings.Cut(name, "/")
		if err := f.confirmNone(ctx, kind, namespace, pre.UID); err != nil {
			return err
		}
	}
	return nil
}

// confirmNone returns an error if a kind cannot be listed in a namespace, or an object there has an owner.
func (f *Fleet) confirmNone(ctx context.Context, kind store.Kind, namespace string, owner types.UID) error {
	kind.Namespace = namespace
	operation := fmt.Sprintf("list %s in namespace %s", kind.Name, namespace)
	return f.client.eachMetadata(ctx, operation, f.all, mostChecked, func(r rest.Interface) *rest.Request {
		return of(kind.Metadata(), r.Get(), "PartialObjectMetadataList")
	}, func(o *metav1.PartialObjectMetadata) error {
		if slices.ContainsFunc(o.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == owner }) {
			return fmt.Errorf("%s: %w: %s refers to the object", operation, controlplane.ErrUnavailable, o.Name)
		}
		return nil
	})
}

// confirmOther returns ErrConflict if another object is not in its state. It reads the object once
// for all dependents that are written at the same time. A version, or that there is no object of a
// name, is read for each write: it must hold after the object to write was read.
func (f *Fleet) confirmOther(ctx context.Context, o store.Reference) error {
	if o.Version != "" || o.UID == "" {
		return f.checkOther(ctx, o)
	}
	key := reference{o.Kind.Name, o.Name, o.UID, o.Version, o.Deletion}
	if f.reads.recently(key) {
		return nil
	}
	_, err, _ := f.reads.reading.Do(fmt.Sprint(key, f.reads.since()), func() (any, error) {
		if f.reads.recently(key) {
			return nil, nil
		}
		began := time.Now()
		err := f.checkOther(ctx, o)
		if err == nil {
			f.reads.record(key, began)
		}
		return nil, err
	})
	return err
}

// checkOther reads an object, and returns ErrConflict if it is not in its state.
func (f *Fleet) checkOther(ctx context.Context, o store.Reference) error {
	return o.Check(f.get(ctx, "get "+o.Kind.Key(o.Name), o.Kind.Metadata(), o.Name))
}

// recently reports whether the object had that state at a time that still counts.
func (s *readCache) recently(key reference) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.others[key]
	counts := confirmedFor
	if key.uid != "" && key.version == "" && key.deletion == "" {
		counts = absentFor
	}
	return known && time.Since(last) < counts
}

// forget makes each object and each kind be read again, also those that are being read.
func (s *readCache) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = time.Now()
	clear(s.others)
	clear(s.checked)
}

// since returns when forget was last called. A read that began before it is not shared any more.
func (s *readCache) since() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgotten
}

// record records that an object had that state at that time.
func (s *readCache) record(key reference, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Before(s.forgotten) {
		return
	}
	if len(s.others) >= mostOthers {
		clear(s.others)
	}
	s.others[key] = at
}

// confirmUnchanged returns ErrConflict if an object of a kind has changed since the position. It
// lists the kind, because the watch of a kind without changes reports its progress only once a
// minute.
func (f *Fleet) confirmUnchanged(ctx context.Context, p store.Position, version string) error {
	select {
	case f.reads.checking <- struct{}{}:
		defer func() { <-f.reads.checking }()
	case <-ctx.Done():
		return fmt.Errorf("list %s: %w: %w", p.Kind.Name, controlplane.ErrUnavailable, context.Cause(ctx))
	}
	f.reads.mu.Lock()
	done, known := f.reads.checked[p.Kind.Name]
	f.reads.mu.Unlock()
	began := time.Now()
	if known && !newer(done.from, p.Version) && !newer(version, done.to) {
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
	f.reads.mu.Lock()
	defer f.reads.mu.Unlock()
	if !began.Before(f.reads.forgotten) {
		f.reads.checked[p.Kind.Name] = check{p.Version, page.ResourceVersion}
	}
	return nil
}

// Release removes owner references and a finalizer without reading the object first. For a type
// without a strategic merge patch it returns errors.ErrUnsupported and changes nothing.
func (f *Fleet) Release(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, owners []types.UID, finalizer string) error {
	ctx, cancel, operation, err := startCall(ctx, "update", kind, name)
	if err != nil {
		return err
	}
	defer cancel()
	if f.reads.mergesOnly(kind.Name) {
		return errors.ErrUnsupported
	}
	if err := f.confirm(ctx, name, pre, pre.Version); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	metadata := map[string]any{"uid": pre.UID, "resourceVersion": pre.Version}
	if finalizer != "" {
		metadata["$deleteFromPrimitiveList/finalizers"] = []string{finalizer}
	}
	var references []any
	for _, uid := range owners {
		references = append(references, map[string]any{"$patch": "delete", "uid": uid})
	}
	if len(references) > 0 {
		metadata["ownerReferences"] = references
	}
	text, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", operation, controlplane.ErrInvalid, err)
	}
	within, stop, err := f.within(ctx, pre.Term)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	defer stop()
	_, err = f.requestObject(within, operation, kind, target{path.Base(name), pre.UID}, func(r rest.Interface) *rest.Request {
		return at(kind, r.Patch(types.StrategicMergePatchType), name).Body(text)
	})
	if errors.Is(err, errMediaType) {
		f.reads.recordMerges(kind.Name)
		return errors.ErrUnsupported
	}
	return err
}

func (s *readCache) mergesOnly(kind string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.merges[kind]
}

func (s *readCache) recordMerges(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.merges[kind] = true
}

// newer reports whether a version is, or may be, newer than another.
func newer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}
