package objects

import (
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// object is the pointer type of an API type.
type object[T any] interface {
	*T
	store.Object
}

// api returns the kind that encodes and decodes the values.
func (k Kind) api() store.Kind {
	switch k {
	case Lease:
		return store.Leases
	case Event:
		return store.Kind{Name: string(k), GVK: corev1.SchemeGroupVersion.WithKind("Event"), New: func() store.Object { return &corev1.Event{} }}
	default:
		return store.Nodes
	}
}

// encode returns the value of an object in the store.
func encode[T any, P object[T]](kind Kind, o P) ([]byte, error) { return kind.api().Encode(o) }

// decode decodes the value of a key. It leaves out fields that the API type does not have in this
// version.
func decode[T any, P object[T]](key Key, value []byte, version Version) (P, error) {
	left := controlplane.MostValues
	return decodeWithin[T, P](key, value, version, &left)
}

// decodeWithin is decode for an object of a page, which is in memory as a whole. left is how many
// more values the page may have.
func decodeWithin[T any, P object[T]](key Key, value []byte, version Version, left *int) (P, error) {
	name := key.Node
	if key.Kind == Event {
		name = key.Name
	}
	o, err := key.Kind.api().Decode(name, value, string(version), left)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return o.(P), nil
}

// initialize sets UID and creation time, which never change.
func (c *Client) initialize(o metav1.Object) {
	o.SetUID(NewUID())
	o.SetCreationTimestamp(metav1.NewTime(c.o.Now()).Rfc3339Copy())
}

// NewUID returns a random UID, as in RFC 9562 version 4.
func NewUID() types.UID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}
