package maintenance

import (
	"cmp"
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
	All     bool      // critical pods, too
}

// DrainForCause runs an automatic drain. It stops all pods except critical ones, or all with Order.All. It does not
// cordon the Node: a taint already repels pods, and without a Lease the control plane is unreachable. It calls
// began, which stores the start of the record, before the first stop. If began returns an error, no pod is stopped.
// It continues an interrupted drain. If it returns no error, what it has stopped is on the disk.
func (d *Drainer) DrainForCause(ctx context.Context, o Order, began func(time.Time) error) (journal.Record, error) {
	if err := d.mayDrain(ctx); err != nil {
		return journal.Record{}, err
	}
	start := cmp.Or(o.Began, time.Now().UTC().Round(0))
	if err := began(start); err != nil {
		return journal.Record{}, fmt.Errorf("drain: no pod was stopped: %w", err)
	}
	what := "all pods but critical ones"
	if o.All {
		what = "all pods"
	}
	demand := shutdown.Demand{Trigger: o.Trigger, Cause: o.Cause, Began: start, All: o.All}
	record, err := d.stopPods(ctx, demand, "hostler: "+o.Cause, fmt.Sprintf("stops %s: %s", what, o.Cause), func(*journal.Record) {})
	if err == nil {
		err = d.synced(ctx)
	}
	return record, err
}

// synced waits until the journal is on the disk.
func (d *Drainer) synced(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), diskTimeout, errDisk)
	defer cancel()
	if err := d.o.Journal.Sync(ctx); err != nil {
		return fmt.Errorf("cannot store which pods a drain has stopped: %w", err)
	}
	return nil
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
// returns whether there is a record of the drain. After an error, the caller must not forget the drain: it may not
// be undone, or that is not on the disk.
func (d *Drainer) Undo(ctx context.Context, o Order) (undone bool, err error) {
	if _, read := d.o.Journal.Found(); !read {
		return false, journal.ErrUnread
	}
	undone = d.o.Guard.UndoDrain(ctx, o.Began)
	if err := ctx.Err(); err != nil {
		return undone, err
	}
	return undone, d.synced(ctx)
}
