package rebooters

import "slices"

// Reboots reports whether a script has a command that reboots the host.
func Reboots(script string) bool { return slices.ContainsFunc(commands(script), reboots) }
