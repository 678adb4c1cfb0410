package shutdown

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// unitBound is how long the stop of a unit waits until it is recorded on disk.
const unitBound = time.Second

// recordStoppedUnits records units before they are stopped because they run a container. If the
// shutdown is cancelled, they are started again, even by a later process.
func (g *Guard) recordStoppedUnits(ctx context.Context, names []string) {
	for _, name := range names {
		g.options.Journal.AddPendingUnit(name, time.Now())
	}
	ctx, cancel := context.WithTimeout(ctx, unitBound)
	defer cancel()
	g.options.Journal.Flush(ctx)
}

// holdUnits records units before an automatic drain stops them. If that drain is undone, they are
// started again.
func (g *Guard) holdUnits(ctx context.Context, drain *journal.Record, names []string) {
	g.waiveUnits(ctx, names)
	g.options.Journal.HoldUnits(drain, names)
	ctx, cancel := context.WithTimeout(ctx, unitBound)
	defer cancel()
	g.options.Journal.Flush(ctx)
}

// waiveUnits removes units from the journal before a manual drain stops them, so that they stay
// stopped. If a shutdown takes over from the drain, it still starts them again.
func (g *Guard) waiveUnits(ctx context.Context, names []string) {
	if g.options.Board.Status().State == Draining {
		g.recordStoppedUnits(ctx, names)
		return
	}
	g.options.Journal.WaiveUnits(func(pending string) bool { return slices.Contains(names, pending) })
}
