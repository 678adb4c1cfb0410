// Package shutdown closes the house in order: it knows which pods stop in which
// phase, with which grace, and guards the host's shutdown until they have.
//
// It owns the phases and the plan, which are pure; the guard, a state machine
// over an Inhibitor; and the journal on disk that survives the shutdown. It
// knows neither D-Bus nor any runtime by name, and refuses to decide whether a
// service stop is a shutdown: the agent asks and tells.
package shutdown
