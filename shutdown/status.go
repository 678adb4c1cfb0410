package shutdown

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// State is what a Guard is doing.
type State int

// The states of a Guard.
const (
	Disarmed  State = iota // holds no lock: disabled, or something is missing
	Armed                  // subscribed, and holds the lock
	Draining               // a shutdown runs, and pods are being stopped
	Released               // the pods are stopped, and the lock is released
	Delegated              // another program guards the shutdown of this host
)

var stateNames = [...]string{"Disarmed", "Armed", "Draining", "Released", "Delegated"}

// String returns the state's name as `hostler status` prints it.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "Unknown"
	}
	return stateNames[s]
}

// MarshalText writes the state's name into JSON and YAML.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote. An unknown name becomes Disarmed, so that an older
// client can read the answer of a newer agent.
func (s *State) UnmarshalText(text []byte) error {
	*s = State(max(slices.Index(stateNames[:], string(text)), 0))
	return nil
}

// Transition is one edge of the Guard's state machine.
type Transition struct {
	From, To State
	When     string
}

// Transitions lists every change of state of a Guard. It starts in Disarmed. Once systemd shuts down,
// only another drain at the stop of the service follows Released.
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

// Status is the guard as `hostler status` shows it, with a field for each key of its JSON.
// Records in it are shared and must not be changed.
type Status struct {
	State  State  `json:"state"`
	Reason string `json:"reason"`

	GracePeriod             metav1.Duration `json:"gracePeriod"`             // of all phases
	GracePeriodCriticalPods metav1.Duration `json:"gracePeriodCriticalPods"` // of those from plan.CriticalPriority on

	// Untimed are the phases with a configured time of zero.
	Untimed []string `json:"untimed,omitempty"`

	// InhibitDelayMax is what the init system grants. It is zero if that is nothing or unknown;
	// InhibitDelayShortage says which. If it is nothing, pods are stopped in phases of full length
	// when systemd stops the services.
	InhibitDelayMax plan.Delay `json:"inhibitDelayMax"`
	// InhibitDelaySource names what sets it, such as a file.
	InhibitDelaySource string `json:"inhibitDelaySource"`

	// InhibitDelayNeeded is the time of the phases and their margin; zero if the guard is disabled.
	InhibitDelayNeeded metav1.Duration `json:"inhibitDelayNeeded,omitzero"`
	// InhibitDelayShortage says why less is granted, and how to fix it. It is empty if enough is
	// granted, or if that was not checked because no lock is held.
	InhibitDelayShortage string `json:"inhibitDelayShortage,omitempty"`
	// Trouble is why the guard is not armed; nil if it is.
	Trouble error `json:"-"`

	// Deadline is when the drain that runs ends at the latest.
	Deadline time.Time `json:"deadline,omitzero"`
	// Current is the drain that runs or was released, or that the end of the previous process
	// interrupted and that may continue.
	Current *journal.Record `json:"current,omitempty"`
	// ManualDrain is the drain by an operator, while it runs.
	ManualDrain *journal.Record `json:"byHand,omitempty"`
	// Last is the last shutdown, as far as it is known.
	Last *journal.Record `json:"last"`
	// Cancelled is the last cancelled shutdown, if it was after Last and had sent a stop signal.
	Cancelled *journal.Record `json:"calledOff,omitempty"`
	// Drained is the last manual drain that stopped a pod, in this boot or in the one that Last
	// ended.
	Drained *journal.Record `json:"drained,omitempty"`
	// Restarts are the containers that Last, or a cancelled shutdown before it, stopped and that
	// their runtime can start again, with the results.
	Restarts []journal.Restart `json:"restarts,omitempty"`
	// NotStarted are units that a cancelled shutdown stopped and that systemd could not start again,
	// or that have failed since.
	NotStarted []NotStarted `json:"notStarted,omitempty"`
}

// History returns the records of the last shutdowns.
func (s Status) History() journal.History {
	return journal.History{Last: s.Last, Cancelled: s.Cancelled, Drained: s.Drained, Restarts: s.Restarts}
}

// NotStarted is a unit that does not run again.
type NotStarted struct {
	Unit   string `json:"unit"`
	Reason string `json:"reason"`
	// Failed reports that systemd started the unit and that it ended as Reason says, such as
	// "exit-code". hostler does not start it a second time.
	Failed bool `json:"failed,omitempty"`
}

// GoingDown reports whether pods are being stopped, or were, for a shutdown that is still in
// progress. After a restart that interrupted a drain, it is also true until the guard has checked,
// for as long as that drain could have taken.
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

// Change is a change of state, or of the delay that an armed guard is granted.
type Change struct {
	From, To State // both Armed for the latter
	// Trigger is why pods were stopped the last time; empty if they never were.
	Trigger journal.Trigger
	Status  Status // as it is after the change
}

// Reporter reports to the control plane. The guard calls it when a drain begins, without waiting, and
// when all pods are stopped, before it releases the lock; then the context bounds the wait. Calls may
// overlap.
type Reporter interface {
	ReportShutdown(ctx context.Context, status Status) error
}

// DelaySourcer is an Inhibitor that knows what sets its longest delay.
type DelaySourcer interface {
	// MaxDelaySource names the source, such as the file of a drop-in; empty for the default of the
	// init system.
	MaxDelaySource(ctx context.Context) (string, error)
}

// KindSource is an Inhibitor that knows the kind of the shutdown in progress.
type KindSource interface {
	// PreparingKind returns the kind, such as "reboot", or why it is unknown; empty without a
	// shutdown.
	PreparingKind(ctx context.Context) (string, error)
}

// LockInheritor is an Inhibitor that may have locks of an earlier process.
type LockInheritor interface {
	// ReleaseAll closes all of this service's locks, also those that no Inhibit has returned yet. It
	// makes no call to the login manager.
	ReleaseAll() error
}

// DelayYielder is an Inhibitor that can undo RaiseMaxDelay.
type DelayYielder interface {
	// YieldMaxDelay undoes it if other settings request as much, so that the longest delay is theirs
	// alone. Otherwise it changes nothing.
	YieldMaxDelay(ctx context.Context) error
}
