package report

// State is the registration state of this host's Node, as far as is known.
type State int

// The states of a registration. It starts in Unregistered.
const (
	Unregistered State = iota // not registered yet
	Awaited                   // there is no Node, and hostler may not create it
	Watching                  // another machine has the Node, and may be alive
	Registered                // the Node belongs to this machine
	Outdated                  // registered, but another client has changed it
)

var stateNames = [...]string{"Unregistered", "Awaited", "Watching", "Registered", "Outdated"}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// Transition is one edge of the registration's state machine.
type Transition struct {
	From, To State
	When     string
}

// Transitions returns all state changes that a registration can make.
func Transitions() []Transition {
	return []Transition{
		{Unregistered, Registered, "Register succeeds"},
		{Unregistered, Awaited, "there is no Node, and hostler may not create it"},
		{Unregistered, Watching, "another machine may still hold the lease"},
		{Awaited, Registered, "Register succeeds"},
		{Awaited, Watching, "another machine may still hold the lease"},
		{Awaited, Unregistered, "the host is deregistered"},
		{Watching, Registered, "Register succeeds"},
		{Watching, Awaited, "there is no Node, and hostler may not create it"},
		{Watching, Unregistered, "another error, or the host is deregistered"},
		{Registered, Outdated, "the watch reports a change, or the control plane did not answer"},
		{Registered, Unregistered, "the Node was deleted or taken over"},
		{Outdated, Registered, "the Node is read again"},
		{Outdated, Unregistered, "the Node was deleted or taken over"},
	}
}
