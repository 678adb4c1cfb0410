package store

import "context"

// LeaseDuration is the setting that requests a Lease duration, such as "2m", from all hosts, so
// that they renew their Leases less often.
const LeaseDuration = "lease-duration"

// Settings is a Store with values that all hosts read. People set them, too, and a server never
// replaces a person's value. The rules for calls are those of Store.
type Settings interface {
	// Setting reads a setting. It succeeds if there is none.
	Setting(ctx context.Context, name string) (Setting, error)
	// Set stores a value, or removes it if value is empty. Errors: ErrConflict if a person has set
	// before, or if the setting has changed since it was read; ErrDeposed if the Term has ended.
	Set(ctx context.Context, name string, before Setting, value string, term Term) error
}

// Setting is one setting that was read.
type Setting struct {
	Value   string // empty if there is none
	Own     bool   // a server has stored it, and no one has changed it since
	Version string // changes with each write
}

// Persons reports whether a person has set it.
func (s Setting) Persons() bool { return s.Value != "" && !s.Own }
