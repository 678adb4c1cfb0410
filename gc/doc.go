// Package gc takes out the rubbish: images and dead containers that nobody
// needs, oldest use first, when the filesystem that holds them is too full or
// when they are too old.
//
// It owns the policies, which are pure ([Plan] takes facts and a time and says
// of every image and container whether it goes and why); the collectors, which
// carry a plan out one removal at a time and measure what it brought; and the
// tracker that knows when an image was last used, with the small [Store] it
// needs for that. It refuses to decide whose job collection is on this host,
// to remove anything that a container uses, and to believe sizes: those order
// and estimate, only the filesystem's own figures count.
package gc
