// Package inspect reads the state of a host, even without an agent. It reads the facts for doctor,
// the last shutdown, and whether a configuration fits the host. It also finds what a killed agent
// left, and verifies the control plane.
//
// It owns where each fact is read. Package doctor judges the facts. Only TakeBack and Verifier
// change anything.
package inspect
