// Package gc decides which images and dead containers are removed: those that nobody
// needs, oldest use first, when the filesystem that holds them is too full or
// when they are too old.
//
// It owns the policies and their facts, and is pure: [Plan] takes facts and a
// time and says of every image and container whether it goes and why. Package
// collect carries plans out and measures what they bring; package lastused knows
// when an image was last used. It refuses to decide whose job collection is on
// this host, to name for removal anything that a container uses, and to take
// sizes for more than an order and an estimate.
package gc
