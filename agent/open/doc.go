// Package open makes the parts of an agent from its configuration: runtimes, the client of
// the control plane, policies, the log. Commands that work without an agent use it as well.
//
// It owns how a configuration reads in the words of each part. It starts nothing, and does
// not decide which parts there are.
package open
