package store

import "errors"

// ErrDeposed means that another process has the controller now, or nobody. Nothing was written.
var ErrDeposed = errors.New("no longer the leader")
