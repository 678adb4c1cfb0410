// Package packages builds hostler's packages twice and checks their content, also with Debian's and
// rpm's own checks. It installs them in a Debian that is not booted. Tests that need a booted one
// are in test/machine.
package packages
