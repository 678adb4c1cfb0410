// Package store is the store of the server role: the objects of a whole fleet, on etcd, on
// Kubernetes or in memory. It owns the Store interface. Package storetest has the suite that every
// implementation passes.
//
// The agent uses controlplane.Client instead, which knows only the objects of one host.
package store

import (
	"context"
	"errors"
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

// Preconditions are conditions of a write. The store compares them and writes in one step.
type Preconditions struct {
	UID     types.UID // of the stored object; empty for any
	Version string    // resourceVersion of the stored object; empty for any
	// Unreadable makes the write fail if the stored object can be read. Kubernetes does not compare
	// it.
	Unreadable bool
	// Term is the term in which the caller writes; the zero value if it needs none.
	Term Term
	// Others are the states that other objects must have, at most MostOthers. A store that cannot
	// compare them in the write reads them in the half second before; the absence of a UID in the
	// ten seconds before. It reads a Version after the object that an Update edits.
	Others []Reference
	// Unchanged are kinds of which no object may have been created or changed since a Tracker reached
	// a version. A store that cannot compare that in the write checks it before the write, up to the
	// version of the object.
	Unchanged []Position
	// Unlisted are kinds that cannot be listed as a whole. In the namespace of the object they can, and no
	// object there refers to it; else ErrUnavailable. etcd has no such kinds.
	Unlisted []Kind
}

// MostOthers is the maximum number of Others of one write: etcd limits the size of a transaction.
const MostOthers = 50

// Reference is the state of an object: one version, being deleted, or absent.
type Reference struct {
	Kind Kind
	Name string    // name of the stored object
	UID  types.UID // empty for any
	// Version is the resourceVersion that the object must have. Deletion is the policy that its
	// deletion must have, at any version; see DeletionOf. If both are empty, no object of that name
	// may have the UID.
	Version  string
	Deletion metav1.DeletionPropagation
}

// Check returns ErrConflict if the stored object is not in this state. It is nil if there is none, or if a read has
// returned err. The version of an unreadable object is known.
func (r Reference) Check(stored Object, err error) error {
	unreadable, is := errors.AsType[*UnreadableError](err)
	switch {
	case is && unreadable.Version != "" && r.UID == "" && r.Deletion == "":
		stored = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: unreadable.Version}}
	case errors.Is(err, controlplane.ErrNotFound):
		stored = nil
	case err != nil:
		return err
	}
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

// Position is the version up to which the changes of a kind were reported.
type Position struct {
	Kind    Kind
	Version string // as in Tracker.Reached
	// ByPeople leaves out what only hosts may write on etcd, except what Host may write below its own folders, if given.
	// Nodes and Leases are always left out.
	ByPeople bool
	Host     string
}

// Store has the objects of a fleet. Its methods are safe for concurrent use and return soon after
// their context ends. A call without a deadline gets one. Errors name operation and object, and
// wrap controlplane.ErrNotFound, ErrConflict, ErrForbidden, ErrInvalid or ErrUnavailable, or
// ErrDeposed. A write that returns ErrUnavailable may have been stored.
type Store interface {
	// Type is the store's name in the configuration, such as "etcd".
	Type() string
	// Endpoint is the address of the store.
	Endpoint() string
	// EndsLeases reports whether the store itself deletes a Lease that was not renewed for its
	// duration.
	EndsLeases() bool

	// Ping returns nil if the majority of the store answers. A member that is cut off from the others
	// returns an error. If the store went back to an earlier state since the last Ping, it returns
	// ErrRestored once.
	Ping(ctx context.Context) error

	// Get reads an object. The result is not older than any earlier answer to this process. Errors:
	// ErrNotFound; UnreadableError, which is also an ErrInvalid.
	Get(ctx context.Context, kind Kind, name string) (Object, error)

	// Create stores a new object with a new UID and creationTimestamp, and returns the stored object.
	// ErrConflict if one of that name exists.
	Create(ctx context.Context, kind Kind, o Object) (Object, error)

	// Update reads an object, calls edit, stores the changes, and returns the stored object. Nothing
	// is written if edit changes nothing. edit may be called again with a newer state of the object.
	// If edit removes the last finalizer of an object whose deletion was requested, the object is
	// deleted.
	//
	// Errors: ErrNotFound; ErrConflict if a precondition is not met or another client writes in
	// between; ErrDeposed if the Term has ended. An error of edit is returned unchanged.
	Update(ctx context.Context, kind Kind, name string, pre Preconditions, edit func(Object) error) (Object, error)

	// Delete requests the deletion of an object. It is removed, or gets a deletionTimestamp if it has
	// finalizers. The policy adds or removes the finalizers foregroundDeletion and orphan; the
	// default, an empty policy, changes none. Errors: ErrNotFound, ErrConflict and ErrDeposed as for
	// Update.
	Delete(ctx context.Context, kind Kind, name string, pre Preconditions, policy metav1.DeletionPropagation) error

	// Follow reports all objects of a kind to f, and then each change, until ctx ends or the
	// connection is lost, and returns why. It starts with a list. If it cannot continue after an
	// interruption, it starts with a list again. It confirms to a Confirmer what the majority of the
	// store has; if the store answers, but the changes do not arrive, it returns ErrUnavailable.
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
	// Deletions leaves out writes after the list, if the store can filter them; another store reports
	// them.
	Deletions
)

// Follower receives the objects of one kind. One goroutine calls its methods, one call at a time.
// They return soon and do not call the store. They do not change objects, because other followers
// may receive the same ones.
type Follower interface {
	// Begin starts a list: Set follows for each stored object, then Synced. If a list fails, the next
	// one starts with Begin again.
	Begin()
	// Set is called for each object of a list, and for a new or changed object.
	Set(name string, object Object)
	// Unreadable is called instead of Set for an object that cannot be read. An UnreadableError has its version.
	Unreadable(name string, err error)
	// Delete is called for an object that was deleted.
	Delete(name string)
	// Synced ends a list. Objects that were not listed do not exist.
	Synced()
}

// Tracker is a Follower that records which changes it has received.
type Tracker interface {
	Follower
	// Reached is called when all changes up to a version were reported: after each list and after each
	// change. Only the store can interpret a version.
	Reached(version string)
}

// Elector elects the leader of a controller: one process at a time.
type Elector interface {
	// Elect makes candidate the leader for ttl (whole seconds) if there is no leader: this process has
	// not seen the term of one begin or be extended for its ttl. Otherwise it returns the leader, and
	// the zero Term.
	Elect(ctx context.Context, controller, candidate string, ttl time.Duration) (Term, Leader, error)
	// Extend makes a term last for its ttl from now on; ErrDeposed if another candidate leads, or if
	// the term was resigned.
	Extend(ctx context.Context, term Term) error
	// Resign ends a term, so that the next candidate does not have to wait. It succeeds if the term
	// has ended.
	Resign(ctx context.Context, term Term) error
	// Leader reads the leader of a controller; the zero Leader if there is none.
	Leader(ctx context.Context, controller string) (Leader, error)
}

// Term is the term of one candidate as the leader of a controller.
type Term struct {
	Controller string
	Candidate  string
	TTL        time.Duration
	// Token identifies the term among all terms of the controller. Only the store can interpret it.
	Token string
}

// Leader is the leader of a controller.
type Leader struct {
	Candidate string    `json:"candidate"`
	Since     time.Time `json:"since"`
}
