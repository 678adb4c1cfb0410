package maintenance

import (
	"context"
	"fmt"
	"time"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

// Order is a drain that hostler itself has decided on.
type Order struct {
	Trigger journal.Trigger
	Cause   string    // for people
	Began   time.Time // of the record to continue; zero for a new drain
}

// DrainForCause stops all pods but critical ones because hostler decided so. It does not cordon the
// Node: a taint keeps pods away, and without a Lease there is nobody to tell. It calls began with the
// start of the record before the first stop. An interrupted drain is continued.
func (d *Drainer) DrainForCause(ctx context.Context, o Order, began func(time.Time)) (journal.Record, error) {
	if err := d.mayDrain(ctx); err != nil {
		return journal.Record{}, err
	}
	demand := shutdown.Demand{Trigger: o.Trigger, Cause: o.Cause}
	if r := d.o.Journal.Drained(); r != nil && !o.Began.IsZero() && r.StartedAt.Equal(o.Began) {
		demand.Resume = r
	}
	return d.stopPods(ctx, demand, "hostler: "+o.Cause, fmt.Sprintf("stops all pods but critical ones: %s", o.Cause), func(r *journal.Record) { began(r.StartedAt) })
}

// Undo starts again what a drain has stopped, as after a cancelled shutdown. It returns whether there
// is a record of it.
func (d *Drainer) Undo(ctx context.Context, o Order) bool {
	return d.o.Guard.UndoDrain(ctx, o.Began)
}
