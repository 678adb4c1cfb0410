package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/internal/listen"
)

// listTime limits the time of a list of objects.
const listTime = 25 * time.Second

// reader reads the objects of a fleet on etcd for the command line.
type reader struct {
	store store.Store
	turns listen.Turns // for what reads many objects
}

func newReader(s store.Store) *reader { return &reader{store: s, turns: listen.NewTurns()} }

// get answers KIND with a list, and KIND/NAME with the whole object.
func (o *reader) get(r *http.Request) (any, error) {
	text := r.URL.Query().Get("name")
	if !o.store.EndsLeases() {
		return nil, &hint.Error{Message: "the objects of " + o.store.Type() + " are not listed here", Hint: "use `kubectl get`", Status: http.StatusBadRequest}
	}
	if kind, name, one := strings.Cut(text, "/"); !one {
		return o.list(r.Context(), kind)
	} else if name == "" {
		return nil, &hint.Error{Message: fmt.Sprintf("%q has no name", text), Hint: "use KIND for a list, or KIND/NAME as the list prints it", Status: http.StatusBadRequest}
	}
	key := keyOf(text)
	kind := kindOf(key.Kind)
	kind.New = func() store.Object { return &rawObject{} }
	found, err := o.store.Get(r.Context(), kind, key.Name)
	if err != nil {
		return nil, o.explain(r.Context(), text, err)
	}
	object, _ := found.(*rawObject)
	return json.RawMessage(printable(object.value)), nil
}

// keyOf returns the stored key of an object that a person names KIND/NAME.
func keyOf(text string) garbagecollector.Key {
	kind, name, _ := strings.Cut(text, "/")
	if slices.Contains(ownKinds(), kind) {
		return garbagecollector.Key{Kind: kind, Name: name}
	}
	return garbagecollector.Key{Kind: store.Objects.Name, Name: text}
}

// ownKinds are the kinds that are not below objects/.
func ownKinds() []string { return []string{store.Events.Name, store.Leases.Name, store.Nodes.Name} }

// kindOf returns the kind of that name, metadata only.
func kindOf(name string) store.Kind {
	for _, kind := range []store.Kind{store.Nodes, store.Leases, store.Events, store.Objects} {
		if kind.Name == name {
			return kind.Metadata()
		}
	}
	return store.Below(name)
}

// list reads all objects of a kind.
func (o *reader) list(ctx context.Context, name string) (answer.ObjectList, error) {
	list := answer.ObjectList{Kind: name, Objects: []answer.Object{}}
	err := error(nil)
	if faults := validation.IsDNS1123Label(name); len(faults) > 0 {
		err = fmt.Errorf("%w: %s", controlplane.ErrInvalid, faults[0])
	} else {
		kind := kindOf(name)
		if name == store.Events.Name { // their messages are listed, too
			kind.New = func() store.Object { return &corev1.Event{} }
		}
		list.Objects, err = o.follow(ctx, kind)
	}
	if err == nil && len(list.Objects) == 0 && !slices.Contains(ownKinds(), name) {
		err = controlplane.ErrNotFound
	}
	if err != nil {
		return list, o.explain(ctx, name, err)
	}
	return list, nil
}

// follow reads a list of objects with Store.Follow.
func (o *reader) follow(ctx context.Context, kind store.Kind) ([]answer.Object, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTime, controlplane.ErrNoAnswer)
	defer cancel()
	release, err := o.turns.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	l := &listing{end: cancel}
	if err := o.store.Follow(ctx, kind, store.Deletions, l); !l.ended {
		return nil, err
	}
	slices.SortFunc(l.list, func(a, b answer.Object) int { return strings.Compare(a.Name, b.Name) })
	return l.list, nil
}

// listing collects one list.
type listing struct {
	list  []answer.Object
	ended bool
	end   func()
}

// Begin implements store.Follower.
func (l *listing) Begin() {
	if !l.ended {
		l.list = []answer.Object{}
	}
}

// Set implements store.Follower.
func (l *listing) Set(name string, o store.Object) {
	a := answer.Object{Name: clean(name), Owners: []string{}, Finalizers: []string{}}
	for _, ref := range o.GetOwnerReferences() {
		a.Owners = append(a.Owners, clean(store.Resource(ref.Kind)+"/"+ref.Name))
	}
	for _, f := range o.GetFinalizers() {
		a.Finalizers = append(a.Finalizers, clean(f))
	}
	if at := o.GetCreationTimestamp(); !at.IsZero() {
		a.Created = utc(&at)
	}
	if at := o.GetDeletionTimestamp(); at != nil {
		a.Deleted = utc(at)
	}
	if e, is := o.(*corev1.Event); is {
		a.Event = &answer.Event{Type: clean(e.Type), Reason: clean(e.Reason), Message: clean(e.Message), Count: e.Count, LastSeen: controlplane.JSONTime(e.LastTimestamp.Time)}
		if e.LastTimestamp.IsZero() { // clients of events.k8s.io set EventTime
			a.Event.LastSeen = controlplane.JSONTime(e.EventTime.Time)
		}
	}
	l.add(a)
}

// Unreadable implements store.Follower.
func (l *listing) Unreadable(name string, err error) {
	l.add(answer.Object{Name: clean(name), Owners: []string{}, Finalizers: []string{}, Problem: clean(whyUnreadable(err))})
}

func (l *listing) add(a answer.Object) {
	if !l.ended {
		l.list = append(l.list, a)
	}
}

// Delete implements store.Follower.
func (l *listing) Delete(string) {}

// Synced implements store.Follower.
func (l *listing) Synced() {
	l.ended = true
	l.end()
}

// explain adds a hint to an error about KIND or KIND/NAME.
func (o *reader) explain(ctx context.Context, text string, err error) error {
	kind, name, one := strings.Cut(text, "/")
	e := &hint.Error{Message: clean(err.Error())}
	switch {
	case errors.Is(err, controlplane.ErrNotFound):
		e.Status = http.StatusNotFound
		kinds, failed := o.kinds(ctx)
		switch known := failed != nil || slices.Contains(kinds, kind); {
		case known && one:
			e.Message, e.Hint = clean(fmt.Sprintf("there is no object %s", text)), fmt.Sprintf("`hostler fleet get %s` lists them", clean(kind))
		case known:
			e.Message = clean("there are no objects of kind " + kind)
			if kind == "pods" {
				e.Hint = "check that pods run, and that `status.pods` is true in the configuration of their hosts"
			}
		default:
			e.Message, e.Hint = clean(fmt.Sprintf("there are no objects of kind %s", kind)), clean("use one of "+strings.Join(kinds, ", "))
		}
	case errors.Is(err, store.ErrUnreadable):
		e.Message, e.Hint = clean(fmt.Sprintf("%s cannot be read: %s", text, whyUnreadable(err))), hintUnreadable
	case errors.Is(err, controlplane.ErrInvalid):
		e.Status, e.Hint = http.StatusBadRequest, "use a kind such as nodes, leases, events or pods, or KIND/NAME as `hostler fleet get KIND` prints it"
		if one && !strings.Contains(name, "/") && kind == store.Events.Name {
			e.Hint = "use events/NODE/NAME"
		}
	case errors.Is(err, controlplane.ErrConflict):
		e.Status, e.Hint = http.StatusConflict, "run the command again, and see what it deletes now"
	case errors.Is(err, controlplane.ErrUnavailable):
		e.Status, e.Hint = http.StatusServiceUnavailable, "try again; `hostler fleet status` shows whether the store answers"
	}
	return e
}

// kinds returns the kinds that have objects, and the kinds that always exist.
func (o *reader) kinds(ctx context.Context) ([]string, error) {
	all, err := o.follow(ctx, store.Objects)
	kinds := append(ownKinds(), store.Pods(true).Name)
	for _, object := range all {
		kind, _, _ := strings.Cut(object.Name, "/")
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds), err
}

// rawObject is an object of any type, with all its fields.
type rawObject struct {
	metav1.PartialObjectMetadata
	value []byte
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *rawObject) UnmarshalJSON(value []byte) error {
	w.value = slices.Clone(value)
	return controlplane.Decode(value, &w.PartialObjectMetadata)
}

// DeepCopyObject implements runtime.Object.
func (w *rawObject) DeepCopyObject() runtime.Object {
	return &rawObject{*w.PartialObjectMetadata.DeepCopy(), slices.Clone(w.value)}
}

// printable escapes characters in a JSON text that are not safe for a terminal, because other
// clients have written it.
func printable(text []byte) []byte {
	var out []byte
	for _, r := range string(text) {
		switch {
		case r < unicode.MaxASCII || unicode.IsPrint(r):
			out = append(out, string(r)...)
		case r > 0xffff:
			out = append(out, '?')
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
