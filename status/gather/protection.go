package gather

import (
	"errors"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/systemd"
)

// Protected returns the result of the condition ShutdownProtected for a guard's status, see
// status.Protected.
func (f *Facts) Protected(g shutdown.Status) (protected bool, reason, message string) {
	return status.Protected(f.protection(g))
}

// protection returns the facts that the condition ShutdownProtected needs.
func (f *Facts) protection(g shutdown.Status) status.Facts {
	runtimes, asked := f.options.Runtimes.Current()
	return status.Facts{Shutdown: f.guarded(g), RuntimesQueried: asked, Runtimes: runtimes, Unreachable: f.options.Runtimes.Unreachable()}
}

// guarded converts the status of the shutdown guard for the Node.
func (f *Facts) guarded(g shutdown.Status) status.Shutdown {
	s := status.Shutdown{
		State: g.State.String(), Reason: g.Reason,
		Granted: g.InhibitDelayMax.Duration, Needed: g.InhibitDelayNeeded.Duration, Shortage: g.InhibitDelayShortage, Untimed: g.Untimed,
	}
	if g.State != shutdown.Disarmed {
		return s
	}
	switch {
	case g.InhibitDelayNeeded.Duration == 0:
		s.Fault = status.ReasonSwitchedOff
		// The guard may be disabled because another program does its job.
		if f.options.OtherGuard == nil {
			break
		}
		if other := f.options.OtherGuard(); other != "" {
			s.State, s.Reason, s.Fault = shutdown.Delegated.String(), other, ""
		}
	case errors.Is(g.Trouble, shutdown.ErrStarting):
		s.Fault = status.ReasonStarting
	case errors.Is(g.Trouble, systemd.ErrNoBus):
		s.Fault = status.ReasonNoBus
	case errors.Is(g.Trouble, systemd.ErrNoLogind), errors.Is(g.Trouble, shutdown.ErrLoginManagerGone):
		s.Fault = status.ReasonNoLogind
	case g.Trouble != nil:
		s.Fault = status.ReasonNoLock
	}
	return s
}
