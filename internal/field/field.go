// Package field has the error type that names a field of the configuration.
package field

import "fmt"

// Error is a problem with one field of the configuration.
type Error struct {
	Field string // its path, such as "node.address.internal[1]"
	Err   error
}

// Errorf returns an *Error.
func Errorf(path, format string, args ...any) error {
	return &Error{path, fmt.Errorf(format, args...)}
}

// Error returns the path of the field and the problem.
func (e *Error) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the problem without the path.
func (e *Error) Unwrap() error { return e.Err }
