package store

import "time"

// Followers is a Follower that forwards every call to each of several Followers.
type Followers []Follower

// Begin implements Follower.
func (f Followers) Begin() {
	for _, to := range f {
		to.Begin()
	}
}

// Set implements Follower.
func (f Followers) Set(name string, object Object) {
	for _, to := range f {
		to.Set(name, object)
	}
}

// Unreadable implements Follower.
func (f Followers) Unreadable(name string, err error) {
	for _, to := range f {
		to.Unreadable(name, err)
	}
}

// Delete implements Follower.
func (f Followers) Delete(name string) {
	for _, to := range f {
		to.Delete(name)
	}
}

// Synced implements Follower.
func (f Followers) Synced() {
	for _, to := range f {
		to.Synced()
	}
}

// Reached implements Tracker.
func (f Followers) Reached(version string) {
	for _, to := range f {
		Reached(to, version)
	}
}

// Confirmed implements Confirmer.
func (f Followers) Confirmed(at time.Time) {
	for _, to := range f {
		Confirmed(to, at)
	}
}

// Reached forwards a version to a Follower that is a Tracker.
func Reached(f Follower, version string) {
	if t, ok := f.(Tracker); ok {
		t.Reached(version)
	}
}
