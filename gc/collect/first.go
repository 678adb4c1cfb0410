package collect

import (
	"context"

	"hostler.io/hostler/gc/runs"
)

// First makes automatic runs of images that are short of space collect dead containers first, by
// the rules for containers: dead containers use images. Runs on request collect what was requested.
type First struct {
	Containers *Containers // nil for none
	Mine       func() bool // whether containers are hostler's to collect
}

// collect reports whether any container went.
func (f First) collect(ctx context.Context, report *runs.Report, progress func(runs.Progress)) bool {
	return f.Containers != nil && report.Trigger != runs.TriggerRequest && f.Mine() && f.Containers.first(ctx, report, progress)
}
