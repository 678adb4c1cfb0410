package runtime

import "context"

// unitStops is the key of the report in a context.
type unitStops struct{}

// WithUnitStops returns a context for calls of a Stopper. Calls that stop a systemd unit for a
// container of it report the names of that unit, and of those that systemd stops with it, right
// before they have systemd do so. The stop waits for report, which bounds itself.
func WithUnitStops(ctx context.Context, report func(ctx context.Context, names []string)) context.Context {
	return context.WithValue(ctx, unitStops{}, report)
}

// ReportUnitStops reports that units are about to be stopped to the function of WithUnitStops in
// ctx, if there is one.
func ReportUnitStops(ctx context.Context, names []string) {
	if report, ok := ctx.Value(unitStops{}).(func(context.Context, []string)); ok {
		report(ctx, names)
	}
}
