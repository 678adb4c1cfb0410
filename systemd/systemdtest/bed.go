package systemdtest

import (
	"testing"
	"time"
)

// patience bounds waits for what should happen at once: far longer than
// anything takes on a loaded machine.
const patience = 30 * time.Second

// Bed is a system bus with a logind that a test may do anything to. A reboot
// that logind goes through with reaches a manager that does nothing.
type Bed interface {
	// Address is the D-Bus address of the bus.
	Address() string
	// Root is the folder under which logind's configuration lies.
	Root() string

	// KillLogind ends logind without warning; StartLogind starts it again, and
	// returns once it answers.
	KillLogind(testing.TB)
	StartLogind(testing.TB)
	// KillBus ends the bus without warning, and logind with it; StartBus starts
	// both again.
	KillBus(testing.TB)
	StartBus(testing.TB)

	// AwaitDown returns when logind had the manager bring the system down.
	AwaitDown(testing.TB) time.Time
	// AbortShutdown has the job cancelled that brings the system down.
	AbortShutdown(testing.TB)
}
