package runtime

import "context"

// exit is the key of the report in a context.
type exit struct{}

// WithExit returns a context for a call of a Stopper. The call reports with which exit code the
// container has ended, if it learns that: of a container that is removed as it ends, no list has it.
// Calls of report may come at once, and after the call has returned.
func WithExit(ctx context.Context, report func(code int32)) context.Context {
	return context.WithValue(ctx, exit{}, report)
}

// ReportExit reports the exit code of a container that is stopped to whoever has made ctx with
// WithExit, and to nobody if none has.
func ReportExit(ctx context.Context, code int32) {
	if report, ok := ctx.Value(exit{}).(func(int32)); ok {
		report(code)
	}
}
