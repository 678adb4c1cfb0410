// Package hint has the error type with a hint for the user. The API passes it on unchanged.
package hint

// Error is why something was not done, and what to do about it.
type Error struct {
	Message string `json:"error"`
	Hint    string `json:"hint,omitempty"` // begins with a verb
	// Status is the HTTP status of the answer; 0 for 500, where the caller is not at fault.
	Status int `json:"-"`
}

// Error writes the message and, on a line of its own, the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "\nhint: " + e.Hint
}
