package shutdown

import (
	"context"
	"errors"
	"io"
	"time"
)

// Inhibitor delays a system shutdown until the node has drained. Package
// systemd implements it over logind; the guard knows nothing of D-Bus.
//
// All methods are safe for concurrent use and bound themselves by a deadline
// where their context has none.
type Inhibitor interface {
	// MaxDelay is the longest delay the init system will grant to a lock.
	MaxDelay(ctx context.Context) (time.Duration, error)

	// RaiseMaxDelay sees to it that at least d is granted, and returns what is
	// granted in the end, read back from the init system: it never lowers, and
	// does nothing where enough is granted already. A result below d comes with
	// an error that says what stands in the way.
	RaiseMaxDelay(ctx context.Context, d time.Duration) (granted time.Duration, err error)

	// Inhibit takes the delay lock, or takes up the one that an earlier process
	// of this service left in systemd's keeping. Closing the lock,
	// once or twice, lets the shutdown continue. It is called again after each loss
	// of the init system, with the lock of before still held; that one is closed
	// once the new one is had. ErrShutdownInProgress where a lock is refused
	// because a shutdown runs already.
	Inhibit(ctx context.Context, why string) (io.Closer, error)

	// Preparing reports whether a shutdown has been announced and not cancelled.
	Preparing(ctx context.Context) (bool, error)

	// Watch sends events until ctx ends or the bus is lost, and returns which.
	// The first event is Subscribed: from then on no announcement is missed.
	Watch(ctx context.Context, events chan<- Event) error
}

// ErrShutdownInProgress means that no lock can be had any more because the
// system is going down.
var ErrShutdownInProgress = errors.New("a shutdown is in progress")

// EventType is what the init system announced.
type EventType int

// What a Watch reports.
const (
	Subscribed EventType = iota // the watch is in place
	Prepare                     // the system is about to go down
	Cancel                      // it is not, after all
	Lost                        // the init system's login manager stopped; its state is forgotten
	Returned                    // it is back: lock and read Preparing again
	Altered                     // locks came or went, or the longest delay did: read both again
)

// Event is one announcement of the init system.
type Event struct {
	Type EventType
	// Kind is the kind of shutdown, such as "reboot" or "poweroff", where the
	// init system reports it; else empty.
	Kind string
}
