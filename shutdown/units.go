package shutdown

import (
	"context"
	"slices"
	"time"
)

// unitBound is how long the stop of a unit waits until that is on disk.
const unitBound = time.Second

// recordStoppedUnits puts on record that units are about to be stopped for a container of them: if the
// shutdown is cancelled they are started again, whatever becomes of this process.
func (g *Guard) recordStoppedUnits(ctx context.Context, names []string) {
	for _, name := range names {
		g.options.Journal.AddPendingUnit(name, time.Now())
	}
	ctx, cancel := context.WithTimeout(ctx, unitBound)
	defer cancel()
	g.options.Journal.Flush(ctx)
}

// waiveUnits takes units off the record that an operator's drain is about to stop: they are to stay
// down. A shutdown that has taken over from that drain owes them all the same.
func (g *Guard) waiveUnits(ctx context.Context, names []string) {
	if g.options.Board.Status().State == Draining {
		g.recordStoppedUnits(ctx, names)
		return
	}
	g.options.Journal.WaiveUnits(func(pending string) bool { return slices.Contains(names, pending) })
}
