package shutdown

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// State is the state of a Guard.
type State int

// The states of a Guard.
const (
	Disarmed  State = iota // holds no lock: disabled, or a requirement is missing
	Armed                  // subscribed, and holds the lock
	Draining               // a shutdown is in progress, and pods are being stopped
	Released               // the pods are stopped, and the lock is released
	Delegated              // another program handles the shutdown of this host
)

var stateNames = [...]string{"Disarmed", "Armed", "Draining", "Released", "Delegated"}

// String returns the state's name in `hostler status`.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "Unknown"
	}
	return stateNames[s]
}

// MarshalText returns the state's name for JSON and YAML.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a state's name. An unknown name becomes Disarmed, so that an older client
// can read the answer of a newer agent.
func (s *State) UnmarshalText(text []byte) error {
	*s = State(max(slices.Index(stateNames[:], string(text)), 0))
	return nil
}

// Transition is one transition of the Guard's state machine.
type Transition struct {
	From, To State
	When     string
}

// Transitions lists every transition of a Guard. The initial state is Disarmed. After systemd has
// begun to shut down, the only transition from Released is to another drain when the service stops.
func Transitions() []Transition {
	return []Transition{
		{Disarmed, Armed, "lock held and no shutdown in progress"},
		{Disarmed, Draining, "shutdown announced or in progress, or systemd stops the service at shutdown"},
		{Disarmed, Delegated, "another owner found"},
		{Armed, Disarmed, "logind or D-Bus unreachable"},
		{Armed, Draining, "shutdown announced, or systemd stops the service at shutdown"},
		{Armed, Delegated, "another owner found"},
		{Draining, Armed, "shutdown cancelled, lock still held"},
		{Draining, Disarmed, "shutdown cancelled, no lock held"},
		{Draining, Released, "all pods stopped or out of time, status written"},
		{Released, Disarmed, "shutdown cancelled or lost by logind"},
		{Released, Draining, "shutdown announced again, or systemd stops the service at shutdown"},
		{Delegated, Disarmed, "no other owner of shutdown found any more"},
	}
}

// Status is the status of the guard, with a field for each key of its JSON. Its records are shared
// and must not be modified.
type Status struct {
	State  State  `json:"state"`
	Reason string `json:"reason"`

	GracePeriod             metav1.Duration `json:"gracePeriod"`             // of all phases
	GracePeriodCriticalPods metav1.Duration `json:"gracePeriodCriticalPods"` // of the phases from plan.CriticalPriority on

	// Untimed are the phases with a configured grace period of zero.
	Untimed []string `json:"untimed,omitempty"`

	// InhibitDelayMax is the delay that the init system grants. It is zero if none is granted, or
	// if it is unknown; InhibitDelayShortage says which. If none is granted, the phases have their
	// full length when systemd stops the services.
	InhibitDelayMax plan.Delay `json:"inhibitDelayMax"`
	// InhibitDelaySource is where that delay is set, such as a file.
	InhibitDelaySource string `json:"inhibitDelaySource"`

	// InhibitDelayNeeded is the time of the phases with the margin; zero if the guard is disabled.
	InhibitDelayNeeded metav1.Duration `json:"inhibitDelayNeeded,omitzero"`
	// InhibitDelayShortage says why less is granted, and how to fix it. It is empty if enough is
	// granted. It is also empty if no lock is held, because then the delay was not checked.
	InhibitDelayShortage string `json:"inhibitDelayShortage,omitempty"`
	// Trouble is why the guard is not armed; nil if it is.
	Trouble error `json:"-"`

	// Deadline is the latest end of the running drain.
	Deadline time.Time `json:"deadline,omitzero"`
	// Current is the drain that is running or was released. It may also be a drain that the end of
	// the previous process interrupted, and that may continue.
	Current *journal.Record `json:"current,omitempty"`
	// ManualDrain is the running manual drain.
	ManualDrain *journal.Record `json:"byHand,omitempty"`
	// Last is the last known shutdown.
	Last *journal.Record `json:"last"`
	// Cancelled is the last cancelled shutdown, if it was after Last and sent a stop signal.
	Cancelled *journal.Record `json:"calledOff,omitempty"`
	// Drained is the last manual drain that stopped a pod, in this boot or in the one that ended
	// with Last.
	Drained *journal.Record `json:"drained,omitempty"`
	// Restarts are the containers that Last, or an earlier cancelled shutdown, stopped and that
	// their runtime can start again, with the results.
	Restarts []journal.Restart `json:"restarts,omitempty"`
	// NotStarted are the units that a cancelled shutdown stopped, and that systemd could not start
	// again or that have failed since.
	NotStarted []NotStarted `json:"notStarted,omitempty"`
}

// History returns the records of the last shutdowns.
func (s Status) History() journal.History {
	return journal.History{Last: s.Last, Cancelled: s.Cancelled, Drained: s.Drained, Restarts: s.Restarts}
}

// NotStarted is a unit that does not run again after a cancelled shutdown.
type NotStarted struct {
	Unit   string `json:"unit"`
	Reason string `json:"reason"`
	// Failed reports that systemd started the unit, and that it failed with the result Reason, such
	// as "exit-code". Hostler does not start it again.
	Failed bool `json:"failed,omitempty"`
}

// GoingDown reports whether pods are being stopped, or were stopped, for a shutdown in progress.
// After a restart that interrupted a drain, it stays true until the guard has checked the shutdown,
// at most for the time of the drain.
func (s Status) GoingDown() bool {
	switch s.State {
	case Draining, Released:
		return true
	case Disarmed:
		r := s.Current
		return r != nil && r.FinishedAt.IsZero() && r.CancelledAt.IsZero() && time.Since(r.StartedAt).Abs() < s.InhibitDelayNeeded.Duration
	}
	return false
}

// Change is a change of state, or of the delay that is granted to an armed guard.
type Change struct {
	From, To State // both are Armed if only the delay changed
	// Trigger is why pods were last stopped; empty if they never were.
	Trigger journal.Trigger
	Status  Status // status after the change
}

// Reporter reports to the control plane. The guard calls it when a drain begins, and does not wait
// for that call. It calls it again when all pods are stopped, before it releases the lock, and
// waits until ctx ends. Calls may overlap.
type Reporter interface {
	ReportShutdown(ctx context.Context, status Status) error
}

// DelaySourcer is an optional interface of an Inhibitor. It returns where the longest delay is set.
type DelaySourcer interface {
	// MaxDelaySource returns the source, such as a drop-in file; empty for the default of the init
	// system.
	MaxDelaySource(ctx context.Context) (string, error)
}

// KindSource is an optional interface of an Inhibitor. It returns the kind of the current shutdown.
type KindSource interface {
	// PreparingKind returns the kind, such as "reboot"; empty without a shutdown. The error says
	// why it is unknown.
	PreparingKind(ctx context.Context) (string, error)
}

// LockInheritor is an optional interface of an Inhibitor that may have locks of an earlier process.
type LockInheritor interface {
	// ReleaseAll closes all locks of this service, including those that no Inhibit has returned. It
	// does not call logind.
	ReleaseAll() error
}

// DelayYielder is an optional interface of an Inhibitor that can undo RaiseMaxDelay.
type DelayYielder interface {
	// YieldMaxDelay undoes RaiseMaxDelay if other settings grant as much, so that the longest delay
	// no longer depends on hostler. Otherwise it changes nothing.
	YieldMaxDelay(ctx context.Context) error
}
