package store

import "errors"

// ErrDeposed means that the term has ended: another process leads now, or none does. Nothing was
// written.
var ErrDeposed = errors.New("no longer the leader")
