package collect

import (
	"context"
	"errors"
	"time"

	"hostler.io/hostler/gc"
)

// Images removes images until their filesystem has room again.
type Images struct {
	*loop
	inForce[gc.ImagePolicy]
	weighed map[string]weighing                                 // by filesystem; guarded by the survey's turn
	before  func(context.Context, *Report, func(Progress)) bool // see ContainersFirst
}

// NewImages checks the policy and the options.
func NewImages(policy gc.ImagePolicy, options Options) (*Images, error) {
	c := &Images{weighed: make(map[string]weighing)}
	if err := errors.Join(c.SetPolicy(policy), options.complete()); err != nil {
		return nil, err
	}
	c.loop = newLoop(options, gc.Options{Images: true})
	c.work = c.collect
	return c, nil
}

func (c *Images) collect(ctx context.Context, o gc.Options, report *Report, progress func(Progress)) {
	r := newImageRun(c, o, report, progress)
	r.look(ctx)
	r.begin()
	if c.before != nil && r.short() && c.before(ctx, report, progress) {
		for _, removal := range report.Removed {
			r.stale[removal.Runtime] = true
		}
		r.settle(ctx)
		r.look(ctx)
	}
	for {
		d := gc.Plan(r.facts, gc.Policy{Images: r.policy}, time.Now(), r.options)
		tried := r.done
		if tried == 0 {
			report.queue(d)
		}
		goOn := r.carryOut(ctx, d)
		// Estimates are wrong both ways, and images turn out to be in use or do
		// not go. Where too little came of it, a new plan from new facts takes the
		// next images: each removal is tried once, so that this ends.
		if !goOn || !r.short() || r.done == tried {
			break
		}
		r.look(ctx)
	}
	r.finish(ctx)
}
