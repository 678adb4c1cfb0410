package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// mostRelists is how often a list may follow a watch that ended at once.
const mostRelists = 5

// Follow lists all objects of a kind page by page, and then watches from the version of the list.
// If the server ends a watch because of its age, Follow continues from the last version.
func (f *Fleet) Follow(ctx context.Context, kind store.Kind, _ store.Scope, to store.Follower) error {
	operation := "follow " + kind.Name
	group, err := f.group(kind)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	fo := following{f, operation, kind, group, to}
	streams := metadataOnly(kind) // the watch begins with the list
	progress := &progress{to: to, answers: make(chan proof, 1), read: func(ctx context.Context) (string, error) { return f.version(ctx, operation, kind) }}
	for version, short := "", 0; ; {
		began := time.Now()
		if version == "" && !streams {
			version, err = fo.list(ctx, progress)
		}
		if (version != "" || streams) && err == nil {
			list := version == ""
			version, err = fo.watch(ctx, version, progress)
			streams = streams && (!list || version != "") // otherwise the server is too old
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", operation, context.Cause(ctx))
		}
		if err != nil {
			return err
		}
		most := 1
		if version == "" { // a list follows
			most = mostRelists
		}
		if time.Since(began) >= shortWatch {
			short = 0
		} else if short++; short > most {
			return fmt.Errorf("%s: %w: the server ends the watch at once", operation, controlplane.ErrUnavailable)
		}
	}
}

// following is a Follow in progress.
type following struct {
	*Fleet
	operation string
	kind      store.Kind
	group     *apiGroup
	to        store.Follower
}

// list reports all objects and returns the version of the list; empty if it has to start again.
func (f following) list(ctx context.Context, progress *progress) (version string, err error) {
	asked := time.Now()
	f.to.Begin()
	for from := ""; ; {
		page, err := f.newList()
		if err != nil {
			return "", err
		}
		most := pageOfNodes
		if metadataOnly(f.kind) {
			most = mostChecked
		}
		err = f.client.page(ctx, f.operation, f.group, from, most, page, func(o *metav1.PartialObjectMetadata, most string) {
			f.to.Unreadable(f.kind.StoredName(o), unreadable(most, o.ResourceVersion))
		},
			func(r rest.Interface) *rest.Request { return of(f.kind, r.Get(), "PartialObjectMetadataList") })
		if outdated(err) {
			return "", nil
		}
		if err == nil { // copies: a part of a page would keep the whole page in memory
			err = meta.EachListItemWithAlloc(page, func(o runtime.Object) error { return f.set(o) })
		}
		if err != nil {
			return "", err
		}
		if from = page.GetContinue(); from == "" {
			f.to.Synced()
			store.Reached(f.to, page.GetResourceVersion())
			progress.list(page.GetResourceVersion(), asked)
			return page.GetResourceVersion(), nil
		}
	}
}

// newList returns an empty list of the kind.
func (f following) newList() (list, error) {
	if metadataOnly(f.kind) {
		return &metav1.PartialObjectMetadataList{}, nil
	}
	o, err := f.scheme.New(f.kind.GVK.GroupVersion().WithKind(f.kind.GVK.Kind + "List"))
	page, ok := o.(list)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s: %w: no list of %s", f.operation, controlplane.ErrInvalid, f.kind.GVK)
	}
	return page, nil
}

// set reports a stored object.
func (f following) set(o runtime.Object) error {
	stored, err := f.object(o)
	if err == nil {
		f.to.Set(f.kind.StoredName(stored), stored)
	}
	return err
}

// object returns an object of the kind.
func (f following) object(o runtime.Object) (store.Object, error) {
	stored, ok := o.(store.Object)
	if !ok || reflect.TypeOf(stored) != reflect.TypeOf(f.kind.New()) {
		return nil, fmt.Errorf("%s: %w: the server sent a %T", f.operation, controlplane.ErrUnavailable, o)
	}
	return read(f.kind, stored), nil
}

// watch reports changes since a version until the server ends the watch because of its age. If
// version is empty, it reports all objects first. It returns the last version; empty if a list has
// to follow.
func (f following) watch(ctx context.Context, version string, progress *progress) (string, error) {
	w := &watching{following: f, listing: version == "", version: version, progress: progress}
	changes, err := w.open(ctx)
	if outdated(err) || w.listing && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
		return "", nil
	}
	if err != nil {
		return "", f.client.fault(ctx, f.operation, err)
	}
	defer changes.Stop()
	if w.listing {
		f.to.Begin()
	}
	again, err := w.run(ctx, changes.ResultChan())
	switch {
	case err != nil || again:
		return "", err
	case w.listing: // the list is incomplete
		return "", fmt.Errorf("%s: %w: the server ended the list", f.operation, controlplane.ErrUnavailable)
	}
	return w.version, nil
}

// watching is a watch in progress.
type watching struct {
	following
	listing  bool   // the watch reports all objects first
	version  string // of the last change or bookmark
	progress *progress
}

// open starts the watch.
func (w *watching) open(ctx context.Context) (watch.Interface, error) {
	return w.group.watch(ctx, func(r rest.Interface) *rest.Request {
		request := of(w.kind, r.Get(), "PartialObjectMetadata").Param("watch", "true").Param("allowWatchBookmarks", "true")
		if w.listing {
			return request.Param("sendInitialEvents", "true").Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
		}
		if !metadataOnly(w.kind) {
			request = request.Param("timeoutSeconds", strconv.Itoa(int(watchTime/time.Second)))
		}
		return request.Param("resourceVersion", w.version)
	})
}

// run reports changes until the watch ends. It reports whether a list has to follow.
func (w *watching) run(ctx context.Context, changes <-chan watch.Event) (again bool, err error) {
	ticker := time.NewTicker(proofInterval)
	defer ticker.Stop()
	for due := true; ; {
		if due && !metadataOnly(w.kind) {
			if w.progress.stalled() {
				return true, nil
			}
			w.progress.ask(ctx)
		}
		due = false
		select {
		case <-ticker.C:
			due = true
		case proof := <-w.progress.answers:
			if w.progress.answer(proof) {
				return true, nil
			}
		case change, open := <-changes:
			if ctx.Err() != nil {
				return false, fmt.Errorf("%s: %w", w.operation, context.Cause(ctx))
			}
			if !open {
				return false, nil
			}
			if again, err := w.report(ctx, change); again || err != nil {
				return again, err
			}
		}
	}
}

// report reports one change. It reports whether a list has to follow.
func (w *watching) report(ctx context.Context, change watch.Event) (again bool, err error) {
	if change.Type == watch.Error {
		err := apierrors.FromObject(change.Object)
		if outdated(err) {
			return true, nil
		}
		return false, w.client.fault(ctx, w.operation, err)
	}
	large, isLarge := change.Object.(*oversized)
	o := store.Object(large)
	if !isLarge {
		var err error
		if o, err = w.object(change.Object); err != nil {
			return false, err
		}
	}
	w.version = o.GetResourceVersion()
	switch name := w.kind.StoredName(o); {
	case change.Type == watch.Bookmark: // has only a version
		if w.listing && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			w.to.Synced()
			w.listing = false
		}
	case change.Type == watch.Deleted:
		w.to.Delete(name)
	case isLarge:
		w.to.Unreadable(name, unreadable(large.cause.most, large.ResourceVersion))
	default:
		w.to.Set(name, o)
	}
	if !w.listing {
		store.Reached(w.to, w.version)
		w.progress.pass(w.version)
	}
	return false, nil
}

// outdated reports whether the server no longer has the changes since a version.
func outdated(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, errOutdated)
}
