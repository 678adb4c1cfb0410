package store

import "context"

// LeaseDuration is the setting by which all hosts are requested to renew their Leases less often, such
// as "2m".
const LeaseDuration = "lease-duration"

// Settings is a Store with values that all hosts read. People set them too, and a server never replaces
// what a person has set. Calls are like those of Store.
type Settings interface {
	// Setting reads a setting. It is no error if there is none.
	Setting(ctx context.Context, name string) (Setting, error)
	// Set stores a value, or removes it if value is empty. ErrConflict if before is a person's, or if
	// anybody has changed the setting since it was read; ErrDeposed if the Term has ended.
	Set(ctx context.Context, name string, before Setting, value string, term Term) error
}

// Setting is one setting as it was read.
type Setting struct {
	Value   string // empty if there is none
	Own     bool   // a server has stored it, and nobody else has since
	Version string // changes with each write
}

// Persons reports whether a person has set it.
func (s Setting) Persons() bool { return s.Value != "" && !s.Own }
