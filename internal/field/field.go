// Package field holds the error that names the field of the configuration it is about.
package field

import "fmt"

// Error is what is wrong with one field of the configuration.
type Error struct {
	Field string // its path, such as "node.address.internal[1]"
	Err   error
}

// Errorf returns an *Error.
func Errorf(path, format string, args ...any) error {
	return &Error{path, fmt.Errorf(format, args...)}
}

// Error is an error of one field of the configuration.
func (e *Error) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong with it.
func (e *Error) Unwrap() error { return e.Err }
