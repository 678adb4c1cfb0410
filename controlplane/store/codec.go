package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/sanitize"
)

// ErrUnreadable is controlplane.ErrUnreadable.
var ErrUnreadable = controlplane.ErrUnreadable

// UnreadableError is an ErrUnreadable of an object in a known state.
type UnreadableError struct {
	Version string // resourceVersion; empty if it is not known
	Cause   string // with a hint
}

// Error implements error.
func (e *UnreadableError) Error() string { return ErrUnreadable.Error() + ": " + e.Cause }

// Unwrap returns ErrUnreadable.
func (e *UnreadableError) Unwrap() error { return ErrUnreadable }

// Encode returns the JSON of an object in the store: without resourceVersion, which the store sets
// when the object is read.
func (k Kind) Encode(o Object) ([]byte, error) {
	stored := o.DeepCopyObject().(Object)
	if !k.GVK.Empty() {
		stored.GetObjectKind().SetGroupVersionKind(k.GVK)
	}
	stored.SetResourceVersion("")
	stored.SetManagedFields(nil)
	value, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w: %w", k.Name, o.GetName(), controlplane.ErrInvalid, err)
	}
	return value, nil
}

// Decode decodes the stored value of the object of that name; UnreadableError. It leaves out fields
// that the API type does not have in this version. left is how many more values the objects that
// are in memory together may have; at first controlplane.MostValues.
func (k Kind) Decode(name string, value []byte, version string, left *int) (Object, error) {
	o, err := k.decode(name, value, left)
	if err != nil {
		return nil, &UnreadableError{version, sanitize.Text(err.Error(), sanitize.MaxText) + ": fix or delete it in the store"}
	}
	if !k.GVK.Empty() {
		o.GetObjectKind().SetGroupVersionKind(k.GVK)
	}
	o.SetResourceVersion(version)
	o.SetManagedFields(nil)
	return o, nil
}

func (k Kind) decode(name string, value []byte, left *int) (Object, error) {
	values, _ := controlplane.CountValues(value)
	switch {
	case !utf8.Valid(value): // what is not would become longer when it is written again
		return nil, errors.New("it is not UTF-8")
	case k.ByHost(name) && rewritten(value) > mostHostBytes:
		return nil, fmt.Errorf("it has more than %d MiB", mostHostBytes>>20)
	case values > k.mostValues(name):
		return nil, fmt.Errorf("it has more than %d values", k.mostValues(name))
	case values > *left:
		return nil, fmt.Errorf("it and the objects before it have more than %d values", controlplane.MostValues)
	}
	*left -= values
	switch o := k.New().(type) {
	case *corev1.Node, *corev1.Pod:
		if err := controlplane.CheckQuantities(value, o); err != nil {
			return nil, err
		}
	}
	o := k.New()
	if err := controlplane.Decode(value, o); err != nil {
		return nil, err
	}
	if err := k.checkSizes(o); err != nil {
		return nil, err
	}
	if fault := k.nameFault(name); fault != "" { // no call could name it
		return nil, fmt.Errorf("its name %q: %s", name, fault)
	}
	found := o.GetObjectKind().GroupVersionKind()
	if k.GVK.Empty() {
		return o, checkPlace(o, strings.TrimPrefix(k.Folder()+name, Objects.Folder()))
	}
	if found != k.GVK && !found.Empty() {
		return nil, fmt.Errorf("its kind is %s of %s", found.Kind, found.GroupVersion())
	}
	own := k.StoredName(o)
	if k.Nested && k.NameOf == nil {
		own, name = o.GetName(), path.Base(name)
	}
	if own != name {
		return nil, fmt.Errorf("it is named %q", own)
	}
	return o, nil
}

// checkPlace returns an error unless an object of any type is stored at RESOURCE/NAME or
// RESOURCE/NAMESPACE/NAME. For pods, the Node precedes the namespace.
func checkPlace(o Object, name string) error {
	gvk := o.GetObjectKind().GroupVersionKind()
	resource, rest, _ := strings.Cut(name, "/")
	want := o.GetName()
	if o.GetNamespace() != "" {
		want = o.GetNamespace() + "/" + want
	}
	if gvk == Pods(true).GVK && resource == Pods(true).Name {
		_, rest, _ = strings.Cut(rest, "/")
	}
	switch {
	case gvk.Kind == "":
		return errors.New("it has no kind")
	case gvk.Version == "":
		return errors.New("it has no apiVersion")
	case Resource(gvk.Kind) != resource:
		return fmt.Errorf("its kind is %s, whose objects are stored below %s/", gvk.Kind, Resource(gvk.Kind))
	case rest != want:
		return fmt.Errorf("it is named %q", want)
	}
	return nil
}

// StoredName returns the name that an object is stored under.
func (k Kind) StoredName(o Object) string {
	if k.NameOf != nil {
		return k.NameOf(o)
	}
	return o.GetName()
}

// CheckCall does what controlplane.CheckCall does, for a name of this kind.
func (k Kind) CheckCall(ctx context.Context, operation, name string) error {
	fault := k.nameFault(name)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s %q: %w", operation, name, context.Cause(ctx))
	case fault == "" && k.parts() && !strings.Contains(name, "/"):
		fault = "it is not " + k.form()
	}
	if fault != "" {
		return fmt.Errorf("%s %q: %w: %s", operation, name, controlplane.ErrInvalid, fault)
	}
	return nil
}

// nameFault returns why a name cannot be one of this kind; empty if it can.
func (k Kind) nameFault(name string) string {
	if !k.parts() {
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
			return faults[0]
		}
		return ""
	}
	if k.NameOf != nil && strings.Count(name, "/") != strings.Count(k.form(), "/") {
		return "it is not " + k.form()
	}
	for part := range strings.SplitSeq(name, "/") {
		switch faults := content.IsPathSegmentName(part); {
		case part == "":
			return "it is not " + k.form()
		case len(part) > validation.DNS1123SubdomainMaxLength:
			return validation.MaxLenError(validation.DNS1123SubdomainMaxLength)
		case len(faults) > 0:
			return faults[0]
		}
	}
	return ""
}

// Key returns KIND/NAME of an object.
func (k Kind) Key(name string) string { return k.Name + "/" + name }

// Editing returns an edit for Update that calls edit with an object of type T; ErrInvalid for
// another type.
func Editing[T Object](edit func(T) error) func(Object) error {
	return func(o Object) error {
		object, ok := o.(T)
		if !ok {
			return fmt.Errorf("%q: %w: the store returned a %T", o.GetName(), controlplane.ErrInvalid, o)
		}
		return edit(object)
	}
}

// Edit calls edit with a copy of the stored object, and returns the value to store; nil if edit
// changes nothing. It returns an error of edit unchanged. It keeps fields that the API type does
// not have in this version, such as those of a newer agent.
func (k Kind) Edit(stored Object, value []byte, edit func(Object) error) ([]byte, error) {
	next := stored.DeepCopyObject().(Object)
	if err := edit(next); err != nil {
		return nil, err
	}
	before, err := k.Encode(stored)
	if err != nil {
		return nil, err
	}
	after, err := k.Encode(next)
	if err != nil || bytes.Equal(before, after) {
		return nil, err
	}
	var fields [3]map[string]any
	for i, text := range [][]byte{value, before, after} {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&fields[i]); err != nil {
			return nil, fmt.Errorf("%s %q: %w: %w", k.Name, stored.GetName(), controlplane.ErrInvalid, err)
		}
	}
	replace(fields[0], fields[1], fields[2])
	var edited bytes.Buffer
	encoder := json.NewEncoder(&edited)
	encoder.SetEscapeHTML(false) // the text must not become larger than the store accepts
	if err := encoder.Encode(fields[0]); err != nil {
		return nil, fmt.Errorf("%s %q: %w: %w", k.Name, stored.GetName(), controlplane.ErrInvalid, err)
	}
	return bytes.TrimSpace(edited.Bytes()), nil
}

// replace applies the changes from before to after to fields. A list is replaced as a whole.
func replace(fields, before, after map[string]any) {
	for name := range before {
		if _, stays := after[name]; !stays {
			delete(fields, name)
		}
	}
	for name, value := range after {
		if reflect.DeepEqual(before[name], value) {
			continue
		}
		inner, isMap := value.(map[string]any)
		stored, wasStored := fields[name].(map[string]any)
		was, _ := before[name].(map[string]any)
		if isMap && wasStored {
			replace(stored, was, inner)
		} else {
			fields[name] = value
		}
	}
}

// Check returns ErrConflict unless the stored object is the one in the Preconditions, in the same
// state.
func (p Preconditions) Check(stored Object) error {
	switch {
	case p.Unreadable:
		return fmt.Errorf("%w: it can be read now", controlplane.ErrConflict)
	case p.UID != "" && stored.GetUID() != p.UID:
		return fmt.Errorf("%w: its UID is %s, not %s", controlplane.ErrConflict, stored.GetUID(), p.UID)
	case p.Version != "" && stored.GetResourceVersion() != p.Version:
		return fmt.Errorf("%w: its version is %s, not %s", controlplane.ErrConflict, stored.GetResourceVersion(), p.Version)
	}
	return nil
}

// longestTerm bounds the duration in the record of a leader, which could be gone for years.
const longestTerm = time.Minute

// TermOf returns how long a record counts after its last change.
func TermOf(seconds int64) time.Duration {
	if seconds <= 0 || seconds > int64(longestTerm/time.Second) {
		return longestTerm
	}
	return time.Duration(seconds) * time.Second
}

// CheckElect checks the arguments of Elect: ErrInvalid.
func CheckElect(controller, candidate string, ttl time.Duration) error {
	var why string
	switch faults := validation.IsDNS1123Subdomain(controller); {
	case len(faults) > 0:
		why = faults[0]
	case candidate == "":
		why = "the candidate has no name"
	case ttl < time.Second || ttl%time.Second != 0:
		why = fmt.Sprintf("a term of %v is not a whole number of seconds, at least 1", ttl)
	default:
		return nil
	}
	return fmt.Errorf("elect a leader of %q: %w: %s", controller, controlplane.ErrInvalid, why)
}
