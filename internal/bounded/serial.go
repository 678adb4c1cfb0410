package bounded

import "context"

// Serial calls a function that may hang, such as a write to a disk. At most one call runs at a time,
// so that calls that hang do not add up.
type Serial struct {
	do   func() error
	free chan struct{} // holds one token while no call runs
}

// NewSerial returns a Serial of a function.
func NewSerial(do func() error) *Serial {
	s := &Serial{do: do, free: make(chan struct{}, 1)}
	s.free <- struct{}{}
	return s
}

// Call waits for the end of an earlier call, then calls the function and returns its error. If ctx
// ends before, Call returns the cause; the function may still run. Safe for concurrent use.
func (s *Serial) Call(ctx context.Context) error {
	select {
	case <-s.free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return Call(ctx, func() error {
		defer func() { s.free <- struct{}{} }()
		return s.do()
	})
}
