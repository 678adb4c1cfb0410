// Package conformance checks the promises of a control plane: one check for each promise of the
// controlplane.Client interface, its roles and its errors. Every client passes the checks in tests.
// `hostler controlplane verify` runs them on the configured control plane.
//
// The package owns the checks, their results, and the names of the objects that they create. It
// changes no other objects. It knows no client by name, and checks nothing that only one control
// plane promises. Tests in packages controlplane and report cover the use of a Client.
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

// Backend is a control plane under test. Parts that it does not have are nil or zero; checks that
// need them are not tried.
type Backend struct {
	// Client is the client under test.
	Client controlplane.Client

	// Prefix begins the name of each Node, Lease and Event that a check creates, so that no other
	// object has that name. It has up to 40 lower-case letters, digits and dashes. With an empty
	// prefix, short names are tried as well, which may belong to other objects.
	Prefix string

	// Edit changes metadata, spec and status of the stored Node of that name, as a person or another
	// controller does. It works while other clients write, too. If nil, the Client is used if it is an
	// Editor.
	Edit func(ctx context.Context, name string, change func(*corev1.Node)) error

	// Delete deletes Node and Lease as another client does; Client.Leave if nil.
	Delete func(ctx context.Context, name string) error

	// Keeps reports that Register may not delete Nodes. It then takes over the Nodes of dead machines.
	Keeps bool

	// Restart returns a client like that of the agent's next run. The previous client is not used
	// afterwards. If it returns an error, the previous client stays in use.
	Restart func(ctx context.Context) (controlplane.Client, error)

	// MaxEvents is the number of Events that are kept, if the control plane limits it.
	MaxEvents int

	// Expires reports that the control plane itself deletes a Lease that was not renewed for its
	// duration.
	Expires bool

	// RequestPace sets the Lease duration that the control plane requests from all hosts; an empty
	// duration requests none. It affects every host of the control plane.
	RequestPace func(ctx context.Context, duration string) error

	// Patience multiplies the time limits of a check, for tests on busy machines; 1 if 0.
	Patience int

	// Inject causes a fault in each answer of the control plane until restore is called. It returns an
	// *UntriedError if it cannot cause the fault here.
	Inject func(Fault) (restore func(), err error)
}

// Fault is a fault in the delivery of answers.
type Fault string

// The faults.
const (
	Slow        Fault = "slow"   // answers arrive a quarter of a second late
	NoAnswer    Fault = "silent" // no answer arrives and the connection stays open; the request may have been executed
	Lost        Fault = "lost"   // the request is executed, and the connection breaks before the answer arrives
	WrongObject Fault = "lying"  // answers contain another object than the requested one
)

// Editor is a Client that can change a Node as another client does. Checks use it to test that
// changes of other clients and of hostler do not disturb each other. The agent does not use it.
type Editor interface {
	// Edit applies change to metadata, spec and status of the stored Node of that name, even if other
	// clients write at the same time. Error: ErrNotFound.
	Edit(ctx context.Context, name string, change func(*corev1.Node)) error
}

// EventRemover is a Client that can delete Events. The agent leaves that to the control plane.
type EventRemover interface {
	// RemoveEvents deletes the Events about the Node of that name. It succeeds if there are none.
	RemoveEvents(ctx context.Context, nodeName string) error
}

// Check is one promise of the Client interface.
type Check struct {
	Name    string  // a sentence
	Feature Feature // the feature that it belongs to
	// Run runs the check on its own Nodes. It returns the defect that it found, or an *AbsentError or
	// *UntriedError. The error wraps the error of the call that failed: ErrForbidden means that the
	// check needs a call which is not allowed.
	Run func(ctx context.Context, b *Backend) error
}

// AbsentError reports that a control plane does not make the promise.
type AbsentError struct{ Why string }

// Error contains the reason.
func (e *AbsentError) Error() string { return "not promised: " + e.Why }

// UntriedError reports why a check cannot be tried here.
type UntriedError struct{ Why string }

// Error contains the reason.
func (e *UntriedError) Error() string { return "not tried: " + e.Why }

// Name returns the name of a check's own Node.
func (b *Backend) Name(own string) string { return b.Prefix + own }

// patient returns a time limit, multiplied by Patience.
func (b *Backend) patient(limit time.Duration) time.Duration {
	return limit * time.Duration(max(1, b.Patience))
}

// as returns the Client in one of its roles.
func as[Role any](b *Backend) (role Role, able bool) {
	client := b.Client
	if n, noted := client.(*recordingClient); noted {
		client = n.Client
	}
	role, able = client.(Role)
	return role, able
}

// restart continues with the client of the agent's next run.
func (b *Backend) restart(ctx context.Context) error {
	next, err := b.Restart(ctx)
	switch n, noted := b.Client.(*recordingClient); {
	case next == nil: // the previous client stays in use
	case noted:
		n.Client = next
	default:
		b.Client = next
	}
	return err
}

// edit changes a Node as another client does.
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

// injectFault causes a fault in answers.
func (b *Backend) injectFault(f Fault) (restore func(), err error) {
	if b.Inject == nil {
		return nil, &UntriedError{"requires a test bed between client and server"}
	}
	return b.Inject(f)
}
