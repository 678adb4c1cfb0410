// Package objects is the Client of every control plane that is no more than a store
// of objects: keys, versions and compare-and-swap. What a Node, a Lease and an Event
// are there, whose they are and how one yields to another is decided here, once;
// a store only keeps them.
//
// It refuses to know any store. Those are memory, and its siblings etcd and plugin.
package objects

import (
	"context"
	"fmt"
	"time"
)

// Kind is what an object is. The value of each is the JSON of the type named, except
// those of settings.
type Kind string

// The kinds.
const (
	Node  Kind = "nodes"  // core/v1.Node
	Lease Kind = "leases" // coordination.k8s.io/v1.Lease
	Event Kind = "events" // core/v1.Event

	// Setting is a text that somebody has written there for all hosts. Clients only read
	// and watch settings; a store that keeps none says ErrInvalid, or that there is none.
	Setting Kind = "settings"
)

// Key names an object. Names are such as Kubernetes allows for a Node and an Event,
// lower-case DNS subdomains, and so safe in paths; Clients check that before a Store
// is asked.
type Key struct {
	Kind Kind   `json:"kind"`
	Node string `json:"node"`           // that it is, or is about; the name of a Setting
	Name string `json:"name,omitempty"` // of an Event; empty else
}

// String is the key as a path: "nodes/NODE", "leases/NODE", "events/NODE/NAME",
// "settings/NAME".
func (k Key) String() string {
	if k.Name == "" {
		return fmt.Sprintf("%s/%s", k.Kind, k.Node)
	}
	return fmt.Sprintf("%s/%s/%s", k.Kind, k.Node, k.Name)
}

// Version identifies one state of an object. Versions can only be compared. No two states of one key
// have the same version, even after a deletion. None is the version of a missing object.
type Version string

// None is the version of a missing object.
const None Version = ""

// Object is the stored value of a key; version None means that there is none.
type Object struct {
	Key     Key
	Value   []byte
	Version Version
}

// Put is what to store, and when.
type Put struct {
	Value []byte
	// Instead is the version that must be stored: None where nothing may be.
	Instead Version
	// TTL is the lifetime of the object after the last Put, by the store's clock, in whole seconds; 0
	// means forever.
	TTL time.Duration
}

// Store keeps objects. Its methods are safe for concurrent use, return soon after
// their context ends and bound themselves by a deadline where it has none. Errors
// name operation and key, and wrap controlplane.ErrNotFound, ErrConflict,
// ErrForbidden, ErrInvalid or ErrUnavailable, as a Client's do; ErrUnavailable is
// what reports that an answer may have been lost.
type Store interface {
	// Type is the store's name in the configuration, such as "etcd".
	Type() string
	// Endpoint is the address that the store is reached at.
	Endpoint() string

	// Get reads an object; ErrNotFound. What it reads is not older than any answer
	// that this process has had before.
	Get(ctx context.Context, key Key) (Object, error)

	// Put stores an object if the stored version is put.Instead, and returns its new
	// version: else *ConflictError, and nothing has changed.
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
	// not exist. It returns when ctx ends or the store is lost, and says which. States can be left
	// out, but not the last one. It has no deadline of its own.
	Watch(ctx context.Context, key Key, seen chan<- Object) error

	// Close gives back connections, after all other calls.
	Close() error
}

// Ender is a Store that may not delete expired objects, whatever their TTL.
type Ender interface {
	// Ends reports whether it does; not before the first call that was answered.
	Ends() bool
}

// ConflictError is a controlplane.ErrConflict with the stored object, so that it need not be read.
type ConflictError struct {
	Stored Object // with version None where nothing is
	Err    error  // wraps controlplane.ErrConflict
}

// Error names the refused operation.
func (e *ConflictError) Error() string { return e.Err.Error() }

// Unwrap returns the refusal.
func (e *ConflictError) Unwrap() error { return e.Err }
