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
	"k8s.io/apimachinery/pkg/types"
)

// Client is a connection to one control plane. Its methods are safe for concurrent use and return
// soon after their context ends. A call without a deadline gets one. Arguments are not changed;
// returned objects belong to the caller. Errors name operation and object, and wrap one of the
// sentinels below. A write that ended with ErrUnavailable or with its context may have been stored;
// it can be repeated. Package conformance checks all of this.
type Client interface {
	// Type is the control plane's name in the configuration, such as "embedded".
	Type() string
	// Endpoint is the address that the client talks to.
	Endpoint() string

	// Register creates the Node or adopts the stored one (see Adopt), and returns the stored Node. It
	// can be repeated at any time. If another machine's Node yields (see Claim), a new Node with
	// another UID replaces it (see Replace). If hostler may not delete or create it, or its status is
	// this machine's (see Reports), it is taken over instead (see TakeOver). The status is stored
	// only if the Node was not this machine's: UpdateStatus follows. Errors: *IdentityError if the
	// name belongs to another machine; ErrNotFound with RegisterOptions.AdoptOnly if there is no
	// Node; ErrConflict if others kept changing it.
	Register(ctx context.Context, node *corev1.Node, opts RegisterOptions) (*corev1.Node, error)

	// Node reads a Node; ErrNotFound, ErrUnreadable.
	Node(ctx context.Context, name string) (*corev1.Node, error)

	// UpdateStatus stores only node.Status and returns the stored Node. It needs no read before it,
	// and ignores node's resourceVersion. Conditions of other writers are kept. If the status has no
	// addresses, the stored ones are kept: a cloud controller manager may have written them. Errors:
	// ErrNotFound if the Node does not exist or has another UID, then call Register again;
	// *IdentityError if another machine has taken it over; ErrConflict if others kept changing it.
	UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error)

	// Lease reads the Lease of the Node of that name; ErrNotFound, ErrUnreadable.
	Lease(ctx context.Context, nodeName string) (*coordinationv1.Lease, error)

	// RenewLease stores the Lease and returns the stored one, for the next call. It never reads
	// first. Without a resourceVersion it creates the Lease, otherwise it replaces only that version;
	// ErrConflict. It also replaces an unreadable Lease if its owner is the Node that this client has
	// registered.
	RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)

	// PublishEvent stores an Event. It replaces an earlier one of the same namespace and name. The
	// control plane bounds the number of Events.
	PublishEvent(ctx context.Context, event *corev1.Event) error

	// Leave deletes the Lease and the Node of that name, if they belong to that machine or if their
	// owner is unknown. It succeeds if they do not exist. Errors: *IdentityError if the Node is
	// another machine's (see CheckLeave), then nothing is deleted; ErrForbidden if a node may not
	// delete its own Node; ErrLeaseStays if only the Node was deleted.
	Leave(ctx context.Context, nodeName string, machine Identity) error

	// Close closes connections. No call may follow.
	Close() error
}

// RegisterOptions control Register.
type RegisterOptions struct {
	// Takeover takes another machine's Node over even if its Lease is alive.
	Takeover bool
	// Lost reports that this process had the Node before. Then a machine without a Lease is watched for
	// longer: otherwise two such machines would take the Node from each other in turns.
	Lost bool
	// AdoptOnly never creates a Node.
	AdoptOnly bool
	// Watch decides whether another machine is dead. Without it, every machine that has renewed a
	// Lease counts as alive.
	Watch *LeaseWatch
	// Replaces, if not nil, is called with another machine's Node that yielded, as it was stored
	// before.
	Replaces func(before *corev1.Node)
}

// Replaced calls Replaces.
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

// EventLister is a Client that can list the published Events.
type EventLister interface {
	// Events lists the stored Events, the oldest first.
	Events(ctx context.Context) ([]corev1.Event, error)
}

// Cordoner is a Client that can mark a Node as closed to new work.
type Cordoner interface {
	// Cordon sets spec.unschedulable and returns the stored Node. own marks a cordon as one of hostler, for a reboot:
	// see OwnCordon. Error: ErrNotFound.
	Cordon(ctx context.Context, nodeName string, unschedulable, own bool) (*corev1.Node, error)
}

// Annotator is a Client that can write an annotation on this host's Node, even if a kubelet owns
// the Node.
type Annotator interface {
	// Annotate sets an annotation of the Node with that name and UID, or removes it if value is empty.
	// It changes nothing else, and returns the stored Node. Errors: ErrNotFound; ErrConflict if the
	// Node has another UID.
	Annotate(ctx context.Context, name string, uid types.UID, key, value string) (*corev1.Node, error)
}

// TaintReconciler is a Client of a control plane in which a host may change all taints of its own
// Node.
type TaintReconciler interface {
	// ReconcilesTaints does nothing. It marks a Client whose Register reconciles taints as
	// ReconcileTaints does.
	ReconcilesTaints()
}

// NodeWatcher is a Client of a control plane where others write Nodes, too, and that reports their
// changes.
type NodeWatcher interface {
	// WatchNode sends the stored Node, nil if there is none, at the start and after each change by any
	// client. It returns when ctx ends or the connection is lost, with the reason. It can skip
	// intermediate states, but not the last one. It has no deadline of its own. If the control plane
	// ends a watch only because of its age, WatchNode starts another.
	WatchNode(ctx context.Context, name string, seen chan<- *corev1.Node) error
}

// ConditionWriter is a Client that can write conditions on a Node that belongs to another writer,
// such as a kubelet on this host.
type ConditionWriter interface {
	// UpdateConditions stores each of node.Status.Conditions on that Node, removes the types in gone,
	// changes nothing else, and returns the stored Node. Errors: ErrNotFound if there is no such
	// Node; *IdentityError if its status is another machine's; ErrConflict if a condition is to be
	// removed and the Node has changed since this client last saw it.
	UpdateConditions(ctx context.Context, node *corev1.Node, gone []corev1.NodeConditionType) (*corev1.Node, error)
}

// Errors that callers branch on. Clients wrap them with operation and object. If a context has
// ended, the error wraps context.Canceled or context.DeadlineExceeded.
var (
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the object has changed since it was read.
	ErrConflict = errors.New("changed since it was read")
	// ErrForbidden: this host's credentials do not allow it.
	ErrForbidden = errors.New("forbidden")
	// ErrInvalid: the control plane refuses the object; a retry does not help.
	ErrInvalid = errors.New("invalid")
	// ErrUnreadable: the stored value is not an object of its kind. It stays unreadable until somebody
	// replaces it. An API server reports such a value as ErrUnavailable.
	ErrUnreadable = errors.New("the stored value cannot be read")
	// ErrIncomplete: everything was returned except what the error names.
	ErrIncomplete = errors.New("some objects cannot be read")
	// ErrLeaseStays: the Node is deleted, and its Lease could not be.
	ErrLeaseStays = errors.New("node deleted, but not its lease")
	// ErrUnavailable: the control plane does not answer in time, does not accept these credentials,
	// or requests a later retry.
	ErrUnavailable = errors.New("control plane unavailable")

	// ErrUnauthorized, always together with ErrUnavailable: the control plane answers and rejects the
	// credentials.
	ErrUnauthorized = errors.New("the server rejected")
	// ErrUntrusted, always together with ErrUnavailable: the server cannot prove that it is the
	// control plane.
	ErrUntrusted = errors.New("cannot verify the server's identity")
)

// Refused reports whether the control plane has answered, and refuses this client: it lacks a right, or
// its credentials are rejected.
func Refused(err error) bool { return errors.Is(err, ErrForbidden) || errors.Is(err, ErrUnauthorized) }

// LabelsError is an ErrForbidden caused by labels of the Node.
type LabelsError struct{ Err error }

// Error returns the text of Err.
func (e *LabelsError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *LabelsError) Unwrap() error { return e.Err }

// BusyError is an ErrUnavailable of a control plane that requests a later retry.
type BusyError struct {
	After time.Duration // counted from the answer
	Err   error
}

// Error names the cause and the requested wait.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: retry after %v", e.Err, e.After)
}

// Unwrap returns the cause.
func (e *BusyError) Unwrap() error { return e.Err }
