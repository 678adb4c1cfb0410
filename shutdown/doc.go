// Package shutdown delays the host's shutdown until its pods are stopped.
//
// It owns the guard, a state machine over an Inhibitor. The plan, the drain and the journal
// are packages below it. It knows neither D-Bus nor any runtime by name, and does not decide
// whether a service stop is a shutdown: the agent does.
package shutdown
