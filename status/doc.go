// Package status makes a Node from the facts of a host: capacity, allocatable, addresses, node
// info and conditions.
//
// It owns the thresholds, the hysteresis of the pressure conditions, the choice of addresses, and
// the reasons and messages of conditions (docs/reference/conditions.md). All functions are pure: facts,
// options, the previous state and a time go in, data comes out. It reads no file, calls no runtime
// and writes to no control plane: package status/probe measures, the agent gathers and reports.
package status
