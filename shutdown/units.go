package shutdown

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// unitBound is how long a shutdown waits until a unit is recorded on disk.
const unitBound = time.Second

// recordStoppedUnits records units before they are stopped because they run a container. If the
// shutdown is cancelled, they are started again, even by a later process. If the disk fails, the
// unit is stopped all the same: the shutdown would kill it, out of its order.
func (g *Guard) recordStoppedUnits(ctx context.Context, names []string) error {
	for _, name := range names {
		g.options.Journal.AddPendingUnit(name, time.Now())
	}
	ctx, cancel := context.WithTimeout(ctx, unitBound)
	defer cancel()
	g.options.Journal.Flush(ctx)
	return nil
}

// holdUnits records units before an automatic drain stops them. If that drain is undone, they are
// started again. A unit that cannot be recorded is not stopped, unless a shutdown has taken over.
func (g *Guard) holdUnits(ctx context.Context, drain *journal.Record, names []string) error {
	_ = g.waiveUnits(ctx, names) // returns no error
	g.options.Journal.HoldUnits(drain, names)
	if g.options.Board.Status().State == Draining {
		return nil
	}
	return g.stored(ctx)
}

// waiveUnits removes units from the journal before a manual drain stops them, so that they stay
// stopped. If a shutdown takes over from the drain, it still starts them again.
func (g *Guard) waiveUnits(ctx context.Context, names []string) error {
	if g.options.Board.Status().State == Draining {
		return g.recordStoppedUnits(ctx, names)
	}
	g.options.Journal.WaiveUnits(func(pending string) bool { return slices.Contains(names, pending) })
	return nil
}
