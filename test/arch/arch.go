// Package arch holds the rules of who may import whom, as a test. The rules are
// ARCHITECTURE.md's map in a form that cannot go stale.
package arch
