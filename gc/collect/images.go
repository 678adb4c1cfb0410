package collect

import (
	"context"
	"errors"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
)

// Images removes images until their filesystems have enough free space.
type Images struct {
	*runs.Loop
	options runs.Options
	effectivePolicy[gc.ImagePolicy]
	weighed map[string]weighing // by filesystem; only the holder of the runs.Turn uses it
	first   First
}

// NewImages validates the policy and the options.
func NewImages(policy gc.ImagePolicy, first First, options runs.Options) (*Images, error) {
	c := &Images{options: options, first: first, effectivePolicy: effectivePolicy[gc.ImagePolicy]{policy: policy}, weighed: make(map[string]weighing)}
	loop, err := runs.NewLoop(options, gc.Options{Images: true}, c.collect)
	if err := errors.Join(policy.Validate(), err); err != nil {
		return nil, err
	}
	c.Loop = loop
	return c, nil
}

func (c *Images) collect(ctx context.Context, o gc.Options, report *runs.Report, progress func(runs.Progress)) {
	r := newImageRun(c, o, report, progress)
	r.scan(ctx)
	r.begin()
	if r.short() && c.first.collect(ctx, report, progress) {
		for _, removal := range report.Removed {
			r.ofRuntimes.of(removal.Runtime).stale = true
		}
		r.settle(ctx)
		r.scan(ctx)
	}
	for {
		d := r.plan(ctx)
		tried := r.tried.count
		if tried == 0 {
			report.Queue(d)
		}
		goOn := r.carryOut(ctx, d)
		// Estimates may be too high or too low. Images may be in use, or their removal may fail. If
		// space is still lacking, the loop makes a new plan from new facts. It ends because each
		// removal is tried only once.
		if !goOn || !r.short() || r.tried.count == tried {
			break
		}
		r.scan(ctx)
	}
	r.finish(ctx)
}
