package agent

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/shutdown"
)

// unitBound is how long a unit that is to be stopped waits until that is on disk.
const unitBound = time.Second

// unitStops puts on record that a unit is about to be stopped for a container of it, and others
// with it: where the shutdown is called off they are started again, whatever becomes of this
// process. What a person drains stays down.
func (a *Agent) unitStops(ctx context.Context, names []string) {
	if g := a.shutdown.guard.Status(); g.ByHand != nil && g.State != shutdown.Draining {
		a.kept.journal.WaiveUnits(func(owed string) bool { return slices.Contains(names, owed) })
		return
	}
	for _, name := range names {
		a.kept.journal.OweUnit(name, time.Now())
	}
	ctx, cancel := context.WithTimeout(ctx, unitBound)
	defer cancel()
	a.kept.journal.Flush(ctx)
}
