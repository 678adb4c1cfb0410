// Package gc decides which images and dead containers are removed: unused ones, least recently
// used first, when their filesystem is too full or when they are too old.
//
// It owns the policies and their facts, and is pure: [Plan] takes facts and a time and returns
// for each image and container whether it is removed and why. Package collect carries plans out
// and measures the freed space; package lastused records when an image was last used. It never
// plans to remove what a container uses. Sizes are estimates, used only for the order.
package gc
