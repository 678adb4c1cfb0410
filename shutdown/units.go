package shutdown

import (
	"context"
	"slices"
	"time"
)

// unitBound is how long the stop of a unit waits for the record on disk.
const unitBound = time.Second

// recordStoppedUnits records units before they are stopped for one of their containers. If the
// shutdown is cancelled they are started again, also by a later process.
func (g *Guard) recordStoppedUnits(ctx context.Context, names []string) {
	for _, name := range names {
		g.options.Journal.AddPendingUnit(name, time.Now())
	}
	ctx, cancel := context.WithTimeout(ctx, unitBound)
	defer cancel()
	g.options.Journal.Flush(ctx)
}

// recordDrainedUnits records units before a drain by the host itself stops them: they are started
// again if that drain is undone.
func (g *Guard) recordDrainedUnits(ctx context.Context, names []string) {
	g.waiveUnits(ctx, names)
	g.options.Journal.AddDrainedUnits(names)
	ctx, cancel := context.WithTimeout(ctx, unitBound)
	defer cancel()
	g.options.Journal.Flush(ctx)
}

// waiveUnits removes units from the record before a manual drain stops them: they stay stopped. A
// shutdown that takes over from that drain still starts them again.
func (g *Guard) waiveUnits(ctx context.Context, names []string) {
	if g.options.Board.Status().State == Draining {
		g.recordStoppedUnits(ctx, names)
		return
	}
	g.options.Journal.WaiveUnits(func(pending string) bool { return slices.Contains(names, pending) })
}
