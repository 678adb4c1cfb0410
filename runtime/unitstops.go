package runtime

import "context"

// unitStops is the context key of the report function.
type unitStops struct{}

// WithUnitStops returns a context for calls of a Stopper. Before a call stops a systemd unit
// because of its container, it passes the names of that unit, and of those that systemd stops with
// it, to report. The stop waits until report returns, so report must limit its own time. After an
// error of report, the unit is not stopped.
func WithUnitStops(ctx context.Context, report func(ctx context.Context, names []string) error) context.Context {
	return context.WithValue(ctx, unitStops{}, report)
}

// ReportUnitStops passes the names of units that are about to be stopped to the function of
// WithUnitStops in ctx, if there is one. After an error, they must not be stopped.
func ReportUnitStops(ctx context.Context, names []string) error {
	if report, ok := ctx.Value(unitStops{}).(func(context.Context, []string) error); ok {
		return report(ctx, names)
	}
	return nil
}
