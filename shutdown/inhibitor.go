package shutdown

import (
	"context"
	"errors"
	"io"
	"time"
)

// Inhibitor delays a system shutdown until the node has drained. Package systemd implements it with
// logind; the guard does not use D-Bus.
//
// All methods are safe for concurrent use. A call without a deadline gets one.
type Inhibitor interface {
	// MaxDelay returns the longest delay that the init system grants to a lock.
	MaxDelay(ctx context.Context) (time.Duration, error)

	// RaiseMaxDelay raises the granted delay to at least d, and returns what the init system then
	// grants. It never lowers it, and does nothing if enough is granted already. A result below d
	// comes with an error that names the obstacle.
	RaiseMaxDelay(ctx context.Context, d time.Duration) (granted time.Duration, err error)

	// Inhibit takes the delay lock, or adopts the one that an earlier process left in systemd's
	// descriptor store. Closing the lock, once or twice, lets the shutdown continue. After each loss
	// of the init system it is called again while the previous lock is still held; the caller closes
	// that one afterwards. ErrShutdownInProgress if a shutdown has already started.
	Inhibit(ctx context.Context, why string) (io.Closer, error)

	// Preparing reports whether a shutdown has been announced and not cancelled.
	Preparing(ctx context.Context) (bool, error)

	// Watch sends events until ctx ends or the bus is lost, and returns which.
	// The first event is Subscribed: from then on no announcement is missed.
	Watch(ctx context.Context, events chan<- Event) error
}

// ErrShutdownInProgress means that the system is shutting down and grants no lock any more.
var ErrShutdownInProgress = errors.New("a shutdown is in progress")

// EventType is what the init system announced.
type EventType int

// What a Watch reports.
const (
	Subscribed EventType = iota // the watch is in place
	Prepare                     // the system is about to go down
	Cancel                      // the shutdown was cancelled
	Lost                        // the login manager stopped, and its state is lost
	Returned                    // the login manager is back: lock and read Preparing again
	Altered                     // locks or the longest delay changed: read both again
)

// Event is one announcement of the init system.
type Event struct {
	Type EventType
	// Kind of the shutdown, such as "reboot" or "poweroff"; empty if the init system does not report
	// it.
	Kind string
}
