// Package open creates the parts of an agent from its configuration: runtimes, the control-plane
// client, policies and the log. Commands that work without an agent use it, too.
//
// It owns the conversion of the configuration to the options of each part. It starts nothing, and
// does not decide which parts exist.
package open
