package conditions

import (
	"context"
	"time"
)

// Execute runs a script as the test's user.
func Execute(ctx context.Context, path string, timeout time.Duration) (Result, <-chan struct{}) {
	return execute(ctx, Program{Path: path, Timeout: timeout, User: "root"})
}

// SetExecute replaces the function that runs programs.
func (r *Runner) SetExecute(f func(context.Context, Program) (Result, <-chan struct{})) {
	r.execute = f
}

// SetRead replaces the function that scans the folder.
func (r *Runner) SetRead(f func(Policy) ([]Program, []Fault)) { r.read = f }

// Unscan makes the Runner one whose folder did not answer to New.
func (r *Runner) Unscan() { r.scanned.Store(false) }

// Header is a parsed header.
type Header struct {
	Type, Reason, User string
	Interval, Timeout  time.Duration
	Temporary          bool
}

func (h header) exported() Header {
	return Header{h.kind, h.reason, h.user, h.interval, h.timeout, h.temporary}
}

// ParseScript parses the header of a script.
func ParseScript(path string, text []byte) (Header, bool, []Fault) {
	h, found, faults := parseScript(path, text)
	return h.exported(), found, faults
}

// ParseFile parses the header of a binary.
func ParseFile(path string, text []byte) (Header, []Fault) {
	h, faults := parseFile(path, text)
	return h.exported(), faults
}

// TypeOf returns the default type for a name.
func TypeOf(name string) string { return typeOf(name) }

// Limits for tests.
const (
	MaxRunning  = maxRunning
	MaxPrograms = maxPrograms
	ScanGrace   = scanGrace
)
