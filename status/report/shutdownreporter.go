package report

import (
	"context"
	"errors"
	"time"

	"hostler.io/hostler/shutdown"
)

// ShutdownReporter has the Node say that the host is going down. It is a shutdown.Reporter.
type ShutdownReporter struct {
	Reporter   *Reporter
	BootEvents *BootEvents
	Flush      func() error // writes to the disk what was kept
}

// ReportShutdown writes the Node's status and the Events so far, and returns when they are
// stored where a power cut does not reach them. The control plane has three quarters of the time.
// While it takes long, what there is to report is written to the disk: the next boot reports what
// the control plane did not take. The remaining time is left for the disk, for what changed meanwhile.
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
