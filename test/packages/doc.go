// Package packages makes hostler's packages twice, looks into them, has Debian's and rpm's
// own checks look at them, and installs them in a Debian that does not run. What takes a
// booted one is in test/machine.
package packages
