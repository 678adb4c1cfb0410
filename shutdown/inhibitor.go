package shutdown

import (
	"context"
	"errors"
	"io"
	"time"
)

// Inhibitor delays a system shutdown until the node is drained. Package systemd implements it with
// logind.
//
// All methods are safe for concurrent use. A call without a deadline gets one.
type Inhibitor interface {
	// MaxDelay returns the longest delay that the init system grants for a lock.
	MaxDelay(ctx context.Context) (time.Duration, error)

	// RaiseMaxDelay raises the granted delay to at least d, and returns the new one. It never
	// lowers the delay. If the result is below d, the error says why.
	RaiseMaxDelay(ctx context.Context, d time.Duration) (granted time.Duration, err error)

	// Inhibit takes the delay lock, or adopts the one that an earlier process left in systemd's
	// descriptor store. Closing the lock, once or twice, lets the shutdown continue. After logind
	// has been lost, the caller calls it again, and then closes the old lock. The error is
	// ErrShutdownInProgress if a shutdown has already started.
	Inhibit(ctx context.Context, why string) (io.Closer, error)

	// Preparing reports whether a shutdown has been announced and not cancelled.
	Preparing(ctx context.Context) (bool, error)

	// Watch sends events until ctx ends or the bus connection is lost, and returns why. The first
	// event is Subscribed: after it, no announcement is missed.
	Watch(ctx context.Context, events chan<- Event) error
}

// ErrShutdownInProgress means that the system is shutting down and grants no lock.
var ErrShutdownInProgress = errors.New("a shutdown is in progress")

// EventType is the type of an Event.
type EventType int

// The types of events.
const (
	Subscribed EventType = iota // the subscription is active
	Prepare                     // the system is about to shut down
	Cancel                      // the shutdown was cancelled
	Lost                        // logind stopped, and lost its state
	Returned                    // logind runs again: take the lock and call Preparing again
	Altered                     // locks or the longest delay changed: read both again
)

// Event is one announcement of the init system.
type Event struct {
	Type EventType
	// Kind of the shutdown, such as "reboot" or "poweroff"; empty if the init system does not report
	// it.
	Kind string
}
