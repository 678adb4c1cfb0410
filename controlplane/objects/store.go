// Package objects is the Client of every control plane that only stores objects: keys, versions and
// compare-and-swap. It decides what a Node, a Lease and an Event are, who owns them, and how one
// owner yields to another. A store only stores them.
//
// It knows no store. The stores are in memory, and in its siblings etcd and plugin.
package objects

import (
	"context"
	"fmt"
	"time"
)

// Kind is the kind of an object. Its value is the JSON of the named type; a setting is plain text.
type Kind string

// The kinds.
const (
	Node  Kind = "nodes"  // core/v1.Node
	Lease Kind = "leases" // coordination.k8s.io/v1.Lease
	Event Kind = "events" // core/v1.Event

	// Setting is a text that a person has stored for all hosts. Clients only read and watch settings.
	// A store without settings returns ErrInvalid or ErrNotFound.
	Setting Kind = "settings"
)

// Key names an object. Names are lower-case DNS subdomains, as Kubernetes allows for a Node and an
// Event, and so safe in paths. Clients check them before they call a Store.
type Key struct {
	Kind Kind   `json:"kind"`
	Node string `json:"node"`           // the Node that it is or is about; the name of a Setting
	Name string `json:"name,omitempty"` // of an Event; empty for other kinds
}

// String is the key as a path: "nodes/NODE", "leases/NODE", "events/NODE/NAME",
// "settings/NAME".
func (k Key) String() string {
	if k.Name == "" {
		return fmt.Sprintf("%s/%s", k.Kind, k.Node)
	}
	return fmt.Sprintf("%s/%s/%s", k.Kind, k.Node, k.Name)
}

// Version identifies one state of an object. Versions can only be compared for equality. No two
// states of one key have the same version, even after a deletion.
type Version string

// None is the version of a missing object.
const None Version = ""

// Object is the stored value of a key; version None means that there is none.
type Object struct {
	Key     Key
	Value   []byte
	Version Version
}

// Put is an object to store.
type Put struct {
	Value []byte
	// Instead is the version that must be stored: None if there must be no object.
	Instead Version
	// TTL is the lifetime of the object after the last Put, by the store's clock, in whole seconds; 0
	// means forever.
	TTL time.Duration
}

// Store stores objects. Its methods are safe for concurrent use and return soon after their context
// ends. A call without a deadline gets one. Errors name operation and key, and wrap
// controlplane.ErrNotFound, ErrConflict, ErrForbidden, ErrInvalid or ErrUnavailable. ErrUnavailable
// means that an answer may have been lost.
type Store interface {
	// Type is the store's name in the configuration, such as "etcd".
	Type() string
	// Endpoint is the address of the store.
	Endpoint() string

	// Get reads an object; ErrNotFound. The result is not older than any earlier answer to this
	// process.
	Get(ctx context.Context, key Key) (Object, error)

	// Put stores an object if the stored version is put.Instead, and returns its new version.
	// Otherwise it returns *ConflictError, and nothing has changed.
	Put(ctx context.Context, key Key, put Put) (Version, error)

	// Delete removes an object if it has that version; otherwise *ConflictError. Version None removes
	// it in any state, and succeeds if it does not exist. With a Node, the Lease of that name is
	// removed, in one step if the store can.
	Delete(ctx context.Context, key Key, version Version) error

	// List reads a page of the objects of a kind, sorted by path, and returns the token of the next
	// page: empty after the last. node, if not empty, selects the Events of one Node. ErrForbidden if
	// this host may read only its own objects.
	List(ctx context.Context, kind Kind, node, page string) (objects []Object, next string, err error)

	// Watch sends the stored object at the start and after each change, with version None if it does
	// not exist. It returns when ctx ends or the connection is lost, with the reason. It can skip
	// states, but not the last one. It has no deadline of its own.
	Watch(ctx context.Context, key Key, seen chan<- Object) error

	// Close closes connections. No call may follow.
	Close() error
}

// Ender is a Store that may or may not delete expired objects.
type Ender interface {
	// Ends reports whether it deletes them. It is valid only after the first answered call.
	Ends() bool
}

// ConflictError is a controlplane.ErrConflict with the stored object, so that no read is needed.
type ConflictError struct {
	Stored Object // version None if there is none
	Err    error  // wraps controlplane.ErrConflict
}

// Error names the refused operation.
func (e *ConflictError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ConflictError) Unwrap() error { return e.Err }
