package collect

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler.io/hostler/gc"
)

// Images removes images until their filesystem has room again.
type Images struct {
	*loop

	mu     sync.Mutex // guards policy
	policy gc.ImagePolicy
}

// NewImages checks the policy and the options.
func NewImages(policy gc.ImagePolicy, options Options) (*Images, error) {
	if err := errors.Join(policy.Validate(), options.complete()); err != nil {
		return nil, err
	}
	c := &Images{loop: newLoop(options, gc.Options{Images: true}), policy: policy}
	c.work = c.collect
	return c, nil
}

// Policy returns the policy in force.
func (c *Images) Policy() gc.ImagePolicy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy
}

// SetPolicy changes the policy from the next run on. A faulty one changes nothing.
func (c *Images) SetPolicy(p gc.ImagePolicy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policy = p
	return nil
}

func (c *Images) collect(ctx context.Context, o gc.Options, report *Report, progress func(Progress)) {
	r := &imageRun{
		survey: c.options.Survey, log: c.options.Log, policy: c.Policy(), options: o,
		report: report, progress: progress,
		before: make(map[string]gc.Usage), idle: make(map[string]int),
		down: make(map[string]bool), skip: make(map[imageRef]bool), removed: make(map[imageRef]taken),
	}
	r.look(ctx)
	r.begin()
	for {
		d := gc.Plan(r.facts, gc.Policy{Images: r.policy}, time.Now(), r.options)
		removed := len(report.Removed)
		goOn := r.carryOut(ctx, d)
		// Estimates are wrong both ways. Where they promised too much, a new
		// plan from new facts takes the next images.
		if !goOn || !r.short() || len(report.Removed) == removed {
			break
		}
		r.look(ctx)
	}
	r.finish(ctx)
}
