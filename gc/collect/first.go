package collect

import (
	"context"

	"hostler.io/hostler/gc/runs"
)

// First makes automatic runs of images that lack space collect dead containers first, because dead
// containers use images. Requested runs collect only what was requested.
type First struct {
	Containers *Containers // nil if there is none
	Mine       func() bool // reports whether hostler owns the collection of containers
}

// collect reports whether any container was removed.
func (f First) collect(ctx context.Context, report *runs.Report, progress func(runs.Progress)) bool {
	return f.Containers != nil && report.Trigger != runs.TriggerRequest && f.Mine() && f.Containers.first(ctx, report, progress)
}
