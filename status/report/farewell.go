package report

import (
	"context"
	"errors"
	"time"

	"hostler.io/hostler/shutdown"
)

// Farewell has the Node say that the host is going down. It is a shutdown.Reporter.
type Farewell struct {
	Reporter  *Reporter
	Chronicle *Chronicle
	Flush     func() error // writes to the disk what was kept
}

// ReportShutdown writes the Node's status and the Events so far, and returns when
// they are stored where a power cut does not reach them. What there is to tell is
// on the disk before the control plane is asked, which has three quarters of the
// time. What it does not take, the next boot tells; what came up meanwhile, the
// disk gets in the rest.
func (f Farewell) ReportShutdown(ctx context.Context, s shutdown.Status) error {
	telling, cancel := ctx, context.CancelFunc(func() {})
	if deadline, bounded := ctx.Deadline(); bounded {
		telling, cancel = context.WithTimeout(ctx, time.Until(deadline)*3/4)
	}
	defer cancel()
	f.Chronicle.Keep() // the reporter has it on the disk before it tells
	err := errors.Join(f.Reporter.ReportShutdown(telling, s), f.Chronicle.recorder.Flush(telling))
	f.Chronicle.Keep()
	return errors.Join(err, f.Flush())
}
