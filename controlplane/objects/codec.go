package objects

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
)

// apiObject is what all API types are.
type apiObject interface {
	metav1.Object
	runtime.Object
}

// object is an API type by its pointer.
type object[T any] interface {
	*T
	apiObject
}

// errUnreadable is of a value that is no object of its kind. To try again is in vain
// until somebody has fixed it.
var errUnreadable = errors.New("the stored value cannot be read")

// gvk is the API type of the kind's values.
func (k Kind) gvk() schema.GroupVersionKind {
	switch k {
	case Lease:
		return coordinationv1.SchemeGroupVersion.WithKind("Lease")
	case Event:
		return corev1.SchemeGroupVersion.WithKind("Event")
	default:
		return corev1.SchemeGroupVersion.WithKind("Node")
	}
}

// encode is the value that the object is stored as: without a resourceVersion, which
// the store gives, and whoever reads it.
func encode[T any, P object[T]](kind Kind, o P) ([]byte, error) {
	stored := o.DeepCopyObject().(P)
	stored.GetObjectKind().SetGroupVersionKind(kind.gvk())
	stored.SetResourceVersion("")
	stored.SetManagedFields(nil)
	value, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w: %w", kind, o.GetName(), controlplane.ErrInvalid, err)
	}
	return value, nil
}

// decode reads the object that is stored under the key. Fields that its API type does
// not have here are left out.
func decode[T any, P object[T]](key Key, value []byte, version Version) (P, error) {
	left := controlplane.MostValues
	return decodeWithin[T, P](key, value, version, &left)
}

// decodeWithin is decode of an object of a page, which is held as a whole: left is how many more values
// it may have.
func decodeWithin[T any, P object[T]](key Key, value []byte, version Version, left *int) (P, error) {
	p := P(new(T))
	var err error
	switch values, _ := controlplane.CountValues(value); {
	case values > controlplane.MostValues:
		err = fmt.Errorf("it has more than %d values", controlplane.MostValues)
	case values > *left:
		err = fmt.Errorf("it and the objects before it have more than %d values", controlplane.MostValues)
	default:
		*left -= values
		err = json.Unmarshal(value, p)
	}
	if err == nil {
		err = suits(key, p)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w: fix or delete it in the store", errUnreadable, key, err)
	}
	p.GetObjectKind().SetGroupVersionKind(key.Kind.gvk())
	p.SetResourceVersion(string(version))
	p.SetManagedFields(nil)
	return p, nil
}

// suits returns why the object is not what its key says, if that is so.
func suits(key Key, o apiObject) error {
	if found := o.GetObjectKind().GroupVersionKind(); found != key.Kind.gvk() && !found.Empty() {
		return fmt.Errorf("its kind is %s of %s", found.Kind, found.GroupVersion())
	}
	name := key.Node
	if key.Kind == Event {
		name = key.Name
	}
	if o.GetName() != name {
		return fmt.Errorf("it is named %q", o.GetName())
	}
	return nil
}

// newborn gives an object what it keeps for all of its life.
func (c *Client) newborn(o metav1.Object) {
	o.SetUID(newUID())
	o.SetCreationTimestamp(metav1.NewTime(c.o.Now()).Rfc3339Copy())
}

// newUID is a random UID, as RFC 9562 version 4.
func newUID() types.UID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its own documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}
