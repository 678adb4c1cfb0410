package systemdtest

import (
	"testing"
	"time"
)

// patience bounds waits for events that normally occur at once, even on a loaded machine.
const patience = 5 * time.Minute

// Bed is a system bus with a logind for one test. If logind completes a shutdown, its manager does
// nothing.
type Bed interface {
	// Address is the D-Bus address of the bus.
	Address() string
	// Root is the folder in which logind's configuration is.
	Root() string

	// KillLogind kills logind; StartLogind starts it again, and returns once it answers.
	KillLogind(testing.TB)
	StartLogind(testing.TB)
	// KillBus kills the bus and logind; StartBus starts both again.
	KillBus(testing.TB)
	StartBus(testing.TB)

	// AwaitDown returns when logind has requested the shutdown from the manager.
	AwaitDown(testing.TB) time.Time
	// AbortShutdown cancels the manager's shutdown job.
	AbortShutdown(testing.TB)
}
