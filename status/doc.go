// Package status says what the host is to its control plane and to its people:
// a Node with capacity, allocatable, addresses, node info and conditions.
//
// It owns what the facts mean: the thresholds, the hysteresis of the pressure
// conditions, the choice among addresses, the reasons and the wording of
// messages (docs/reference/conditions.md). All of it is pure: facts, options, what the
// last check left behind and a time go in, data comes out. It reads no file,
// asks no runtime and writes to no control plane; package status/probe measures,
// the agent gathers and reports.
package status
