package maintenance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/report"
)

// Order is an automatic drain.
type Order struct {
	Trigger journal.Trigger
	Cause   string    // for messages
	Began   time.Time // start of the record to continue; zero for a new drain
}

// DrainForCause runs an automatic drain, which stops all pods except critical ones. It does not
// cordon the Node: a taint already repels pods, and without a Lease the control plane is
// unreachable. It calls began with the start of the record before the first stop. It continues an
// interrupted drain.
func (d *Drainer) DrainForCause(ctx context.Context, o Order, began func(time.Time)) (journal.Record, error) {
	if err := d.mayDrain(ctx); err != nil {
		return journal.Record{}, err
	}
	demand := shutdown.Demand{Trigger: o.Trigger, Cause: o.Cause, Began: o.Began}
	return d.stopPods(ctx, demand, "hostler: "+o.Cause, fmt.Sprintf("stops all pods but critical ones: %s", o.Cause), func(r *journal.Record) { began(r.StartedAt) })
}

// cordonedBy names who cordoned a Node for a reboot.
const cordonedBy = "hostler, for a reboot"

// CordonToReboot cordons the Node unless it is cordoned, or hostler cannot cordon on this host.
func (d *Drainer) CordonToReboot(ctx context.Context) error {
	return d.cordonToReboot(ctx, report.Decision{Unschedulable: true, Own: true})
}

// UncordonAfterReboot uncordons the Node if CordonToReboot cordoned it and nobody changed that
// since.
func (d *Drainer) UncordonAfterReboot(ctx context.Context) error {
	if now := d.o.Reporter.Decided(); now == nil || !now.Own || !now.Unschedulable {
		return nil
	}
	return d.cordonToReboot(ctx, report.Decision{Unschedulable: false})
}

func (d *Drainer) cordonToReboot(ctx context.Context, want report.Decision) error {
	want.By, want.At = cordonedBy, time.Now().UTC()
	changed, err := d.o.Reporter.Cordon(ctx, want)
	if errors.Is(err, report.ErrNotOurs) || errors.Is(err, report.ErrNoCordoner) {
		return nil
	}
	if changed {
		d.recordCordon(want.Unschedulable, want.By, "")
	}
	if err != nil {
		d.o.Log.Warn("cordon saved, and written to the control plane once it answers", "error", err)
	}
	return d.onDisk(ctx)
}

// Undo starts the containers again that a drain has stopped, as after a cancelled shutdown. It
// returns whether there is a record of the drain.
func (d *Drainer) Undo(ctx context.Context, o Order) bool {
	undone := d.o.Guard.UndoDrain(ctx, o.Began)
	// The caller forgets the drain after that. So it must be on disk.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diskTimeout)
	defer cancel()
	d.o.Journal.Flush(ctx)
	return undone
}
