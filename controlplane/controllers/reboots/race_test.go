//go:build race

package reboots_test

// raced is true with the race detector, which makes a simulation ten times slower, and finds nothing new in more of them.
const raced = true
