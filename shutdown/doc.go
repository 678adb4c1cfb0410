// Package shutdown delays the host's shutdown until its pods are stopped.
//
// It owns the guard, a state machine over an Inhibitor. The plan, the drain and the journal are
// subpackages. It does not depend on D-Bus or on a specific runtime. The agent decides whether a
// stop of the service is a shutdown.
package shutdown
