// Package conformance checks what a control plane promises: one check for each promise of the
// controlplane.Client interface, its roles and its errors. Every client passes them in tests, and
// `hostler controlplane verify` tries them on the configured one.
//
// It owns the checks, their results, and the names of the objects that they create: it touches no
// others. It knows no client by name, and checks nothing that only one control plane promises. How
// a Client is used is tested in packages controlplane and report.
package conformance

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// Timeout bounds one check.
const Timeout = 60 * time.Second

// Backend is a control plane under test. Its optional parts are nil or zero where
// there is no such thing; checks that need them are not tried then.
type Backend struct {
	// Client is the client under test.
	Client controlplane.Client

	// Prefix begins the name of each Node, Lease and Event that a check makes, so
	// that none is anybody else's: lower-case letters, digits and dashes, up to 40 of
	// them. With an empty one short names are tried as well, which somebody may have.
	Prefix string

	// Edit changes the stored Node of that name as a person or another controller
	// would, metadata, spec and status, beside whatever else is written meanwhile.
	// The Client's own if nil and it is an Editor.
	Edit func(ctx context.Context, name string, change func(*corev1.Node)) error

	// Delete deletes Node and Lease as someone else would; Client.Leave if nil.
	Delete func(ctx context.Context, name string) error

	// Keeps reports that Register may not delete Nodes, and takes over those of
	// machines that are dead.
	Keeps bool

	// Restart returns a client as the agent's next run will have it, after which
	// the one before is not used any more; nil with an error that keeps that in use.
	Restart func(ctx context.Context) (controlplane.Client, error)

	// MaxEvents is how many Events are kept, where the control plane counts them.
	MaxEvents int

	// Expires reports that the control plane itself ends a Lease that is not renewed for
	// as long as it is good for.
	Expires bool

	// RequestPace has the control plane ask all hosts for Leases that are good for that long,
	// or, with nothing, for none. It concerns every host there is.
	RequestPace func(ctx context.Context, duration string) error

	// Inject makes a fault befall each answer of the control plane until restore is
	// called. Its error is an *UntriedError for a fault that cannot be had here.
	Inject func(Fault) (restore func(), err error)
}

// Fault is what befalls answers on their way.
type Fault string

// The faults.
const (
	Slow        Fault = "slow"   // they come, a quarter of a second late
	NoAnswer    Fault = "silent" // nothing comes, and the connection stays; what was requested may have been done
	Lost        Fault = "lost"   // what was requested is done, and the connection breaks before its answer comes
	WrongObject Fault = "lying"  // they are of another object than the one that was requested
)

// Editor is a Client that can change a Node as others do, for checks of how their
// changes and hostler's live together. The agent does not use it.
type Editor interface {
	// Edit has change made to the stored Node of that name, metadata, spec and status,
	// whatever else is written meanwhile; ErrNotFound.
	Edit(ctx context.Context, name string, change func(*corev1.Node)) error
}

// EventRemover is a Client that can take Events away again, which the agent leaves to
// the control plane.
type EventRemover interface {
	// RemoveEvents deletes the Events about the Node of that name; it succeeds where
	// there are none.
	RemoveEvents(ctx context.Context, nodeName string) error
}

// Check is one promise of the Client interface.
type Check struct {
	Name    string  // a sentence
	Feature Feature // that it is a part of
	// Run tries it on an own set of Nodes, and returns what it found amiss, or an
	// *AbsentError or *UntriedError. It wraps the errors of calls that made it fail: so
	// ErrForbidden means that a call which it needs is not allowed, and no other one.
	Run func(ctx context.Context, b *Backend) error
}

// AbsentError reports that a control plane does not promise what is checked.
type AbsentError struct{ Why string }

// Error says why.
func (e *AbsentError) Error() string { return "not promised: " + e.Why }

// UntriedError reports why a check cannot be tried here.
type UntriedError struct{ Why string }

// Error says why.
func (e *UntriedError) Error() string { return "not tried: " + e.Why }

// Name is the name by which a check has a Node of its own.
func (b *Backend) Name(own string) string { return b.Prefix + own }

// as is the Client in one of its roles.
func as[Role any](b *Backend) (role Role, able bool) {
	client := b.Client
	if n, noted := client.(*noting); noted {
		client = n.Client
	}
	role, able = client.(Role)
	return role, able
}

// restart continues with the client of the agent's next run.
func (b *Backend) restart(ctx context.Context) error {
	next, err := b.Restart(ctx)
	switch n, noted := b.Client.(*noting); {
	case next == nil: // it continues with the one that there is
	case noted:
		n.Client = next
	default:
		b.Client = next
	}
	return err
}

// edit changes a Node as someone else does.
func (b *Backend) edit(ctx context.Context, name string, change func(*corev1.Node)) error {
	edit := b.Edit
	if edit == nil {
		editor, able := as[Editor](b)
		if !able {
			return &UntriedError{"no client here can change a node as another client"}
		}
		edit = editor.Edit
	}
	if err := edit(ctx, name, change); err != nil {
		return fmt.Errorf("edit node %q as someone else: %w", name, err)
	}
	return nil
}

func (b *Backend) delete(ctx context.Context, name string) error {
	if b.Delete != nil {
		return b.Delete(ctx, name)
	}
	return b.Client.Leave(ctx, name, controlplane.Identity{})
}

// injectFault makes a fault befall answers.
func (b *Backend) injectFault(f Fault) (restore func(), err error) {
	if b.Inject == nil {
		return nil, &UntriedError{"requires a test bed between client and server"}
	}
	return b.Inject(f)
}
