package conditions

import (
	"context"
	"time"
)

// Execute runs a script as who the test is.
func Execute(ctx context.Context, path string, timeout time.Duration) (Result, <-chan struct{}) {
	return execute(ctx, Program{Path: path, Timeout: timeout, User: "test"})
}

// SetExecute has another function run programs.
func (r *Runner) SetExecute(f func(context.Context, Program) (Result, <-chan struct{})) {
	r.execute = f
}

// SetRead has another function scan of the folder.
func (r *Runner) SetRead(f func(Policy) ([]Program, []Fault)) { r.read = f }

// Header is what a header says.
type Header struct {
	Type, Reason, User string
	Interval, Timeout  time.Duration
	Temporary          bool
}

func (h header) exported() Header {
	return Header{h.kind, h.reason, h.user, h.interval, h.timeout, h.temporary}
}

// ParseScript reads the header of a script.
func ParseScript(path string, text []byte) (Header, bool, []Fault) {
	h, found, faults := parseScript(path, text)
	return h.exported(), found, faults
}

// ParseFile reads the header beside a binary.
func ParseFile(path string, text []byte) (Header, []Fault) {
	h, faults := parseFile(path, text)
	return h.exported(), faults
}

// TypeOf is the type that a name makes.
func TypeOf(name string) string { return typeOf(name) }

// What the tests compare with.
const (
	MaxRunning  = maxRunning
	MaxPrograms = maxPrograms
	ScanGrace   = scanGrace
)
