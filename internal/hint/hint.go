// Package hint has the error type with a hint for the user. The API sends it to clients unchanged.
package hint

import (
	"fmt"
	"strings"
)

// Error says why a request failed, and what the user can do.
type Error struct {
	Message string `json:"error"`
	Hint    string `json:"hint,omitempty"` // begins with a verb
	// Status is the HTTP status of the response. 0 means 500: the caller did nothing wrong.
	Status int `json:"-"`
}

// Error returns the message and, on the next line, the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "\nhint: " + e.Hint
}

// Below returns an error of a text and an error. An error of several lines begins on a line of its own.
func Below(text string, err error) error {
	separator := " "
	if strings.Contains(err.Error(), "\n") {
		separator = "\n"
	}
	return fmt.Errorf("%s:%s%w", text, separator, err)
}
