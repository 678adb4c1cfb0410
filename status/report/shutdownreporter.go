package report

import (
	"context"
	"errors"
	"time"

	"hostler.io/hostler/shutdown"
)

// ShutdownReporter writes to the Node that the host is shutting down. It is a shutdown.Reporter.
type ShutdownReporter struct {
	Reporter   *Reporter
	BootEvents *BootEvents
	Flush      func() error // writes the stored state to the disk
}

// ReportShutdown writes the Node's status and the Events so far, and returns when they are stored
// safely against a power cut. The control plane gets three quarters of the time. If it is slow, the
// state is also written to the disk, and the next boot sends what the control plane did not
// receive. The rest of the time is for the disk, for later changes.
func (f ShutdownReporter) ReportShutdown(ctx context.Context, s shutdown.Status) error {
	writing, cancel := ctx, context.CancelFunc(func() {})
	if deadline, bounded := ctx.Deadline(); bounded {
		writing, cancel = context.WithTimeout(ctx, time.Until(deadline)*3/4)
	}
	defer cancel()
	f.BootEvents.Keep()
	err := errors.Join(f.Reporter.ReportShutdown(writing, s), f.BootEvents.recorder.Flush(writing))
	f.BootEvents.Keep()
	return errors.Join(err, f.Flush())
}
