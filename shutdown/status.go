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
	Disarmed  State = iota // holds no lock: switched off, or something is missing
	Armed                  // subscribed, and holds the lock
	Draining               // a shutdown runs, and pods are being stopped
	Released               // they are, and the lock is given up
	Delegated              // another client on this host guards its shutdown
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

// UnmarshalText reads what MarshalText wrote; names that it does not know
// become Disarmed, so that an older client can read a newer agent's answer.
func (s *State) UnmarshalText(text []byte) error {
	*s = State(max(slices.Index(stateNames[:], string(text)), 0))
	return nil
}

// Transition is one edge of the Guard's state machine.
type Transition struct {
	From, To State
	When     string
}

// Transitions lists every change of state that a Guard can make. It starts in
// Disarmed. Once systemd goes down, nothing but a further drain at the service's
// stop follows Released.
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

	// Untimed are the phases that are configured to have no time.
	Untimed []string `json:"untimed,omitempty"`

	// InhibitDelayMax is what the init system grants, zero if that is nothing or not known:
	// InhibitDelayShortage reports which. Where it is nothing the pods are stopped while services
	// are, in phases of full length.
	InhibitDelayMax plan.Delay `json:"inhibitDelayMax"`
	// InhibitDelaySource names what sets it, such as a file.
	InhibitDelaySource string `json:"inhibitDelaySource"`

	// InhibitDelayNeeded is what the phases and their margin take; zero where
	// the guard is switched off.
	InhibitDelayNeeded metav1.Duration `json:"inhibitDelayNeeded,omitzero"`
	// InhibitDelayShortage says, with the hint, why less is granted; empty where
	// enough is, or where that was not checked because no lock is held.
	InhibitDelayShortage string `json:"inhibitDelayShortage,omitempty"`
	// Trouble is what keeps the guard from being armed; nil where nothing does.
	Trouble error `json:"-"`

	// Deadline is when the drain that runs ends at the latest.
	Deadline time.Time `json:"deadline,omitzero"`
	// Current is the drain that runs, was released, or was cut off by the end of the process
	// before and may continue.
	Current *journal.Record `json:"current,omitempty"`
	// ManualDrain is the drain that a person requested, while it runs.
	ManualDrain *journal.Record `json:"byHand,omitempty"`
	// Last is the last shutdown, as far as anything is known of it.
	Last *journal.Record `json:"last"`
	// Cancelled is the last shutdown that was cancelled, if that was after Last, and it had
	// asked a container to end by then.
	Cancelled *journal.Record `json:"calledOff,omitempty"`
	// Drained is the last drain by a person that stopped a pod, in this boot or in the one that
	// Last ended.
	Drained *journal.Record `json:"drained,omitempty"`
	// Restarts are the containers that Last stopped, or one before that was cancelled, and
	// that their runtime can start again, with what became of that.
	Restarts []journal.Restart `json:"restarts,omitempty"`
	// NotStarted are units that a shutdown stopped which was cancelled, and that systemd did
	// not start again when it was last asked to, or that have failed since.
	NotStarted []NotStarted `json:"notStarted,omitempty"`
}

// History is how the last shutdowns went.
func (s Status) History() journal.History {
	return journal.History{Last: s.Last, Cancelled: s.Cancelled, Drained: s.Drained, Restarts: s.Restarts}
}

// NotStarted is a unit that is not up again.
type NotStarted struct {
	Unit   string `json:"unit"`
	Reason string `json:"reason"`
	// Failed reports that systemd has started it, and that it ended as Reason says, such as
	// "exit-code": hostler does not start it a second time.
	Failed bool `json:"failed,omitempty"`
}

// GoingDown reports whether pods are being stopped, or were, for a shutdown that is still under
// way. It may be where the guard has not yet looked after a restart that cut off a drain, for
// as long as that could have taken.
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

// Change is one change of state, or of what an armed guard is granted.
type Change struct {
	From, To State // both Armed for the latter
	// Trigger is why pods were stopped the last time; empty if they never were.
	Trigger journal.Trigger
	Status  Status // as it is after the change
}

// Reporter tells the fleet. The guard calls it when a drain begins, without
// waiting, and when all pods are stopped, before it gives up the lock; then the
// context bounds how long it waits. Calls may overlap.
type Reporter interface {
	ReportShutdown(ctx context.Context, status Status) error
}

// DelaySourcer is an Inhibitor that knows what sets its longest delay.
type DelaySourcer interface {
	// MaxDelaySource names it, such as the file of a drop-in; empty for the
	// init system's own default.
	MaxDelaySource(ctx context.Context) (string, error)
}

// KindSource is an Inhibitor that knows of what kind the shutdown is that is in progress.
type KindSource interface {
	// PreparingKind returns it, such as "reboot", or why it is not known; empty if none is.
	PreparingKind(ctx context.Context) (string, error)
}

// LockInheritor is an Inhibitor that may have locks of an earlier process.
type LockInheritor interface {
	// ReleaseAll closes every lock of ours, also those that no Inhibit has returned yet. It
	// asks the login manager nothing.
	ReleaseAll() error
}

// DelayYielder is an Inhibitor that can take back what RaiseMaxDelay did.
type DelayYielder interface {
	// YieldMaxDelay does so where others have requested as much, so that the
	// longest delay is theirs alone; else it changes nothing.
	YieldMaxDelay(ctx context.Context) error
}
