// Package store is what the server role reads and writes: the objects of a whole fleet, on etcd, on
// Kubernetes or in memory. It owns the Store interface; package storetest has the suite that every
// implementation passes.
//
// The agent uses controlplane.Client instead, which knows one host's own objects.
package store

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
)

// Object is any API object, by pointer.
type Object interface {
	metav1.Object
	runtime.Object
}

// Preconditions are what must be true at the moment of a write. The store compares and writes in one
// step.
type Preconditions struct {
	UID     types.UID // of the stored object; empty for any
	Version string    // resourceVersion of the stored object; empty for any
	// Unreadable has the write refused if the stored object can be read. Kubernetes does not compare it.
	Unreadable bool
	// Term is the leadership under which the caller writes; the zero value is for a caller that needs none.
	Term Term
	// Others are the states that other objects must have. There are at most MostOthers. A store that
	// cannot compare them in the write has read them in the half second before.
	Others []Reference
	// Unchanged are kinds of which no object may have been created or changed since a Tracker has reached
	// a version. A store that cannot compare that in the write checks it before, up to the version that
	// the object has.
	Unchanged []Position
}

// MostOthers is how many Others one write can have: etcd bounds the size of a transaction.
const MostOthers = 50

// Reference is the state of an object: one version, being deleted, or absent.
type Reference struct {
	Kind Kind
	Name string    // that it is stored under
	UID  types.UID // empty for any
	// Version is the resourceVersion that the object must have, and Deletion how its deletion must be
	// carried out at any version, see DeletionOf. If both are empty, nothing may have the UID under the name.
	Version  string
	Deletion metav1.DeletionPropagation
}

// Check returns ErrConflict if the stored object, nil if there is none, is not in the state.
func (r Reference) Check(stored Object) error {
	same := stored != nil && (r.UID == "" || stored.GetUID() == r.UID)
	switch {
	case r.Deletion != "" && (!same || DeletionOf(stored) != r.Deletion):
		return fmt.Errorf("%w: %s is not being deleted any more with policy %s", controlplane.ErrConflict, r.Kind.Key(r.Name), r.Deletion)
	case r.Deletion != "":
	case r.Version == "" && same:
		return fmt.Errorf("%w: %s exists", controlplane.ErrConflict, r.Kind.Key(r.Name))
	case r.Version != "" && (!same || stored.GetResourceVersion() != r.Version):
		return fmt.Errorf("%w: %s has changed", controlplane.ErrConflict, r.Kind.Key(r.Name))
	}
	return nil
}

// Position is how far the changes of a kind were followed.
type Position struct {
	Kind    Kind
	Version string // of Tracker.Reached
}

// Store has the objects of a fleet. Its methods are safe for concurrent use and return soon after their
// context ends. A call without a deadline gets one. Errors name operation and object, and wrap
// controlplane.ErrNotFound, ErrConflict, ErrForbidden, ErrInvalid, ErrUnavailable, or ErrDeposed.
// A write that returns ErrUnavailable may have been stored.
type Store interface {
	// Type is the store's name in the configuration, such as "etcd".
	Type() string
	// Endpoint is the address of the store.
	Endpoint() string
	// EndsLeases reports whether the store deletes a Lease by itself when it was not renewed for its
	// duration.
	EndsLeases() bool

	// Ping returns nil if the store answers for its majority: a member that is cut off from the others
	// does not.
	Ping(ctx context.Context) error

	// Get reads an object; ErrNotFound; ErrUnreadable, which is also an ErrInvalid. It is not older than any answer that this process has had before.
	Get(ctx context.Context, kind Kind, name string) (Object, error)

	// Create stores an object that is new, with a UID and a creationTimestamp of its own, and returns it as
	// it is stored. ErrConflict if there is one of that name.
	Create(ctx context.Context, kind Kind, o Object) (Object, error)

	// Update reads an object, calls edit, stores what edit changed, and returns the stored object.
	// Nothing is written if edit changes nothing. ErrNotFound; ErrConflict if a precondition is not met
	// or another client writes in between; ErrDeposed if the Term has ended. An error of edit is
	// returned as it is. edit may be called again, with the object as it is then. An object whose
	// deletion was requested is deleted when edit removes its last finalizer.
	Update(ctx context.Context, kind Kind, name string, pre Preconditions, edit func(Object) error) (Object, error)

	// Delete requests the deletion of an object: it is removed, or, as long as it has finalizers, gets a
	// deletionTimestamp. The policy adds or removes the finalizers foregroundDeletion and orphan; empty
	// for the default, which changes none. ErrNotFound, ErrConflict and ErrDeposed as for Update.
	Delete(ctx context.Context, kind Kind, name string, pre Preconditions, policy metav1.DeletionPropagation) error

	// Follow reports all objects of a kind to f, and then each change, until ctx ends or the store is
	// lost, and returns why. It starts with a list, and starts with a list again if it cannot continue
	// from where it was.
	Follow(ctx context.Context, kind Kind, scope Scope, f Follower) error

	Elector

	// Close closes connections. No call may follow.
	Close() error
}

// Scope says which changes Follow reports.
type Scope int

// The scopes.
const (
	AllChanges Scope = iota
	// Deletions leaves out writes after the list if the store can filter them. A store that cannot
	// reports them.
	Deletions
)

// Follower receives the objects of one kind. One goroutine calls its methods, one at a time. They return
// soon, make no calls to the store, and do not change objects, which other followers may receive too.
type Follower interface {
	// Begin announces a list: Set follows for each stored object, then Synced. A list that cannot be
	// ended begins again.
	Begin()
	// Set is called for an object that is listed, new or changed.
	Set(name string, object Object)
	// Unreadable is called instead of Set for an object that cannot be read.
	Unreadable(name string, err error)
	// Delete is called for an object that was deleted. last is its last state; nil if the store does
	// not know it.
	Delete(name string, last Object)
	// Synced ends a list. Objects that were not listed do not exist.
	Synced()
}

// Tracker is a Follower that knows how far it is.
type Tracker interface {
	Follower
	// Reached is called when all changes up to a version were reported: after each list, and whenever a
	// change was reported. Only the store knows what a version means.
	Reached(version string)
}

// Elector gives a controller to one process at a time.
type Elector interface {
	// Elect gives the controller to candidate for ttl (whole seconds) if nobody has it. Otherwise it
	// returns the leader, and the zero Term.
	Elect(ctx context.Context, controller, candidate string, ttl time.Duration) (Term, Leader, error)
	// Extend lets a term last for its ttl from now on; ErrDeposed if it has ended.
	Extend(ctx context.Context, term Term) error
	// Resign ends a term, so that the next candidate need not wait. It succeeds if the term has ended.
	Resign(ctx context.Context, term Term) error
	// Leader reads who has the controller; the zero Leader if nobody has.
	Leader(ctx context.Context, controller string) (Leader, error)
}

// Term is the leadership of one candidate over one controller, from Elect until it ends.
type Term struct {
	Controller string
	Candidate  string
	TTL        time.Duration
	// Token tells this term from all others of the controller. Only the store knows what it means.
	Token string
}

// Leader is who has a controller.
type Leader struct {
	Candidate string    `json:"candidate"`
	Since     time.Time `json:"since"`
}
