// Package status builds a Node from the facts of a host: capacity, allocatable, addresses, node
// info and conditions.
//
// It owns the thresholds, the hysteresis of pressure conditions, the choice of addresses, and the
// reasons and messages of conditions (docs/reference/conditions.md). All functions are pure: they
// get facts, options, the previous state and a time, and return data. They read no files, call
// nobody, and write to no control plane: package status/probe measures, the agent gathers and
// reports.
package status
