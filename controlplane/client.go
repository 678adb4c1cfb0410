// Package controlplane reports this host to a fleet. It owns the Client interface of all control
// planes, the adoption of Nodes, and the loops that renew a Lease and publish Events.
//
// The clients are in folders of their own (embedded and its siblings); this package knows none of
// them. Package status decides a Node's status, and package report when to write it.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Client reaches one control plane. All methods are safe for concurrent use,
// return soon after their context ends, and bound themselves by a deadline where
// their context has none. Objects that they are given are not changed; objects
// that they return are the caller's to change. Their errors name operation and
// object, and wrap one of the sentinels below where one fits. What ended in
// ErrUnavailable, or with its context, may have been done all the same, and may be asked
// for again. Package conformance has these promises, and those below, as checks.
type Client interface {
	// Type is the control plane's name in the configuration, such as "embedded".
	Type() string
	// Endpoint is the address that the client talks to.
	Endpoint() string

	// Register creates the Node, or adopts a stored one of its name as Adopt
	// describes, and returns what is stored then. It may be repeated at any time.
	// A Node of another machine that yields, as Claim tells, is replaced by a new
	// one, with another UID, as Replace describes; where hostler may not delete it
	// or is not to create one, or the status is this machine's, as Reports tells, it
	// becomes what TakeOver says.
	// The status is stored only if the Node was not this machine's: UpdateStatus
	// follows.
	// *IdentityError where the name is another machine's; ErrNotFound with
	// RegisterOptions.AdoptOnly where there is no Node; ErrConflict where someone
	// else kept changing it.
	Register(ctx context.Context, node *corev1.Node, opts RegisterOptions) (*corev1.Node, error)

	// Node reads a Node; ErrNotFound.
	Node(ctx context.Context, name string) (*corev1.Node, error)

	// UpdateStatus stores node.Status, and nothing else of node, and returns what
	// is stored then. Its resourceVersion does not matter. Where the control
	// plane has other writers, conditions of theirs stay. A status without
	// addresses leaves those that are stored: a cloud controller manager may know
	// them better. It needs no read before it.
	// ErrNotFound where the Node is gone, or another one, with another UID, has
	// its name: Register again. *IdentityError where another machine has taken
	// the Node over; ErrConflict where someone else kept changing it.
	UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error)

	// Lease reads the Lease of the Node of that name; ErrNotFound.
	Lease(ctx context.Context, nodeName string) (*coordinationv1.Lease, error)

	// RenewLease stores the Lease and returns what is stored then, for the next
	// call. It creates a missing one, whatever resourceVersion it is given, and
	// replaces one that is stored only if the resourceVersion is the stored one's:
	// else ErrConflict. It never reads first.
	RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)

	// PublishEvent stores an Event. One of the same namespace and name, which
	// happened before, yields to it. Events are bounded by the control plane.
	PublishEvent(ctx context.Context, event *corev1.Event) error

	// Leave deletes the Lease and the Node of that name, which are that machine's,
	// or anybody's if it is not known. It succeeds where they are gone already.
	// *IdentityError where the Node is another machine's, as CheckLeave tells: nothing
	// is deleted then. ErrForbidden where a node may not delete its own;
	// ErrLeaseStays where the Node is gone then, and the Lease is not.
	Leave(ctx context.Context, nodeName string, machine Identity) error

	// Close gives back connections, after all other calls.
	Close() error
}

// RegisterOptions are how a Node may be registered.
type RegisterOptions struct {
	// Takeover has another machine's Node give way although its Lease is alive.
	Takeover bool
	// Lost reports that this process had the Node: who has taken it since is not dead for
	// having no Lease, or two without would take it from each other in turns.
	Lost bool
	// AdoptOnly never creates a Node.
	AdoptOnly bool
	// Watch reports whether another machine is dead; without one none is that has
	// renewed a Lease.
	Watch *LeaseWatch
	// Replaces is told of another machine's Node that gave way, as it was stored
	// before. It may be nil.
	Replaces func(before *corev1.Node)
}

// Replaced tells Replaces.
func (o RegisterOptions) Replaced(before *corev1.Node) {
	if o.Replaces != nil {
		o.Replaces(before)
	}
}

// NodeLister is a Client that can list the fleet.
type NodeLister interface {
	// Nodes lists all Nodes by name.
	Nodes(ctx context.Context) ([]corev1.Node, error)
}

// EventLister is a Client that can give back what was published.
type EventLister interface {
	// Events lists the stored Events, the one that happened longest ago first.
	Events(ctx context.Context) ([]corev1.Event, error)
}

// Cordoner is a Client that can mark a Node as closed to new work.
type Cordoner interface {
	// Cordon sets spec.unschedulable and returns what is stored then;
	// ErrNotFound.
	Cordon(ctx context.Context, nodeName string, unschedulable bool) (*corev1.Node, error)
}

// TaintReconciler is a Client of a control plane in which a host may change the taints
// of its own Node, and whatever else is on it.
type TaintReconciler interface {
	// ReconcilesTaints says no more than that Register reconciles taints, as it does
	// labels, in the way of ReconcileTaints.
	ReconcilesTaints()
}

// MachineFinder is a Client of a fleet that may be looked through.
type MachineFinder interface {
	// NodesOf lists the Nodes of the machines that have that machine ID, MostNodesOf of
	// them at most, with no more of each than its name and its NodeInfo. It takes as many
	// requests as the fleet is large, and is for rare use. ErrForbidden where this host may
	// not.
	NodesOf(ctx context.Context, machineID string) ([]corev1.Node, error)
}

// MostNodesOf bounds how many Nodes of one machine ID are held: one that is that common is a fault,
// which any of them shows.
const MostNodesOf = 100

// NodeWatcher is a Client of a control plane where others write Nodes as well, and
// that reports it as it happens.
type NodeWatcher interface {
	// WatchNode sends the Node of that name as it is stored, nil where there is
	// none, at first and after each change, whoever made it, until ctx ends or the
	// control plane is lost, and says which. Of changes that come faster than they
	// are received some may be left out, but not the last one. It goes by no
	// deadline but ctx's, and begins again by itself where the control plane ends a
	// watch for no other reason than that it has lasted long.
	WatchNode(ctx context.Context, name string, seen chan<- *corev1.Node) error
}

// ConditionWriter is a Client that can add to a Node that is another's, such as a
// kubelet's on the same host.
type ConditionWriter interface {
	// UpdateConditions stores each of node.Status.Conditions on the Node of that
	// name, in place of one of its type, takes those of the types in gone away, and
	// nothing else, and returns what is stored then. ErrNotFound where there is no
	// such Node; *IdentityError where its status is known to be another machine's;
	// ErrConflict where something is to go and the Node has changed since this
	// client last saw it: it may be another client's now.
	UpdateConditions(ctx context.Context, node *corev1.Node, gone []corev1.NodeConditionType) (*corev1.Node, error)
}

// Error classes that callers branch on. Clients wrap them with operation and
// object. A context that ended shows as context.Canceled or
// context.DeadlineExceeded.
var (
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the object has changed since it was read.
	ErrConflict = errors.New("changed since it was read")
	// ErrForbidden: this host's credentials do not allow it.
	ErrForbidden = errors.New("forbidden")
	// ErrInvalid: the control plane refuses the object as it is, so that trying
	// again is in vain.
	ErrInvalid = errors.New("invalid")
	// ErrIncomplete: all was told but what the error names.
	ErrIncomplete = errors.New("some objects cannot be read")
	// ErrLeaseStays: the Node is deleted, and its Lease could not be.
	ErrLeaseStays = errors.New("node deleted, but not its lease")
	// ErrUnavailable: the control plane does not answer, or not in time, or not
	// these credentials, or asks to return later.
	ErrUnavailable = errors.New("control plane unavailable")

	// ErrUnauthorized, always beside ErrUnavailable: the control plane answers, and
	// does not accept who this host says that it is.
	ErrUnauthorized = errors.New("the server rejected")
	// ErrUntrusted, always beside ErrUnavailable: whoever answers does not prove to
	// be the control plane.
	ErrUntrusted = errors.New("cannot verify the server's identity")
)

// LabelsError is an ErrForbidden that is about labels of the Node.
type LabelsError struct{ Err error }

// Error is that of Err.
func (e *LabelsError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *LabelsError) Unwrap() error { return e.Err }

// BusyError is an ErrUnavailable whose control plane asks to return later.
type BusyError struct {
	After time.Duration // counted from the answer
	Err   error
}

// Error says both.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: retry after %v", e.Err, e.After)
}

// Unwrap returns what went wrong.
func (e *BusyError) Unwrap() error { return e.Err }
