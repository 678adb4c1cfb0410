package runtime

import "context"

// exit is the context key of the report function.
type exit struct{}

// WithExit returns a context for a call of a Stopper. The call reports the container's exit code,
// if it learns it: if a container is removed when it ends, no list shows it. report may be called
// concurrently, and after the call has returned.
func WithExit(ctx context.Context, report func(code int32)) context.Context {
	return context.WithValue(ctx, exit{}, report)
}

// ReportExit passes the exit code of a stopped container to the function of WithExit in ctx, if
// there is one.
func ReportExit(ctx context.Context, code int32) {
	if report, ok := ctx.Value(exit{}).(func(int32)); ok {
		report(code)
	}
}
