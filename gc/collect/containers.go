package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/pace"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
)

// Containers removes dead containers, then the sandboxes of dead pods, then the
// logs of pods that are gone.
type Containers struct {
	*runs.Loop
	options runs.Options
	inForce[gc.ContainerPolicy]
}

// NewContainers checks the policy and the options.
func NewContainers(policy gc.ContainerPolicy, options runs.Options) (*Containers, error) {
	c := &Containers{options: options, inForce: inForce[gc.ContainerPolicy]{policy: policy}}
	loop, err := runs.NewLoop(options, gc.Options{Containers: true}, c.collect)
	if err := errors.Join(policy.Validate(), err); err != nil {
		return nil, err
	}
	c.Loop = loop
	return c, nil
}

func (c *Containers) collect(ctx context.Context, o gc.Options, report *runs.Report, progress func(runs.Progress)) {
	gauge := newGauge(c.options.Survey)
	r := c.newRun(report, progress, gauge)
	report.Ended = string(endNothingLeft)
	d := r.scan(ctx, c.Policy(), o, report)
	r.countKept(d)
	r.containers(ctx, d.Containers)
	r.pods(ctx, d.Pods)
	r.logs(ctx, c.Policy(), o, d.Logs)
	gauge.finish(ctx, report)
}

// first collects for a run of images that is short of space: containers hold images,
// also dead ones. It reports whether any went. It works within the turn of that run,
// into its report, and by the same rules as every run of containers.
func (c *Containers) first(ctx context.Context, report *runs.Report, progress func(runs.Progress)) bool {
	before := len(report.Removed)
	r := c.newRun(report, progress, nil)
	r.kept = make(map[gc.Reason]int) // the report's are images
	r.containers(ctx, r.scan(ctx, c.Policy(), gc.Options{Containers: true}, runs.NewReport("")).Containers)
	return len(report.Removed) > before
}

func (c *Containers) newRun(report *runs.Report, progress func(runs.Progress), gauge *gauge) *containerRun {
	return &containerRun{
		loop: c.Loop, survey: c.options.Survey, log: c.options.Log, report: report, progress: progress, gauge: gauge, kept: report.Kept,
		runtimes: byName(c.options.Survey.Runtimes()), down: make(map[string]bool), staying: make(map[gc.PodKey]bool), patience: make(learned[pace.Patience]),
	}
}

func byName(runtimes []survey.Runtime) map[string]survey.Runtime {
	m := make(map[string]survey.Runtime, len(runtimes))
	for _, rt := range runtimes {
		m[rt.Name()] = rt
	}
	return m
}

// stopGrace is what a container in an unknown state is given to end by itself,
// where it says nothing else: what Kubernetes gives.
const stopGrace = 30 * time.Second

// removeContainer takes a container away; one whose state is unknown may run, and is
// stopped before.
func removeContainer(ctx context.Context, rt survey.Runtime, c runtime.Container, wait *pace.Patience) error {
	if c.State == runtime.Unknown {
		if err := stopUnknown(ctx, rt, c, wait); err != nil {
			return err
		}
	}
	return wait.Within(ctx, 0, func(ctx context.Context) error { return rt.RemoveContainer(ctx, c) })
}

// stopUnknown stops a container unless the runtime has found out meanwhile that it
// runs, as after a restart of its own: runtime.ErrInUse then.
func stopUnknown(ctx context.Context, rt survey.Runtime, c runtime.Container, wait *pace.Patience) error {
	pods, err := runtime.Within(ctx, survey.Timeout, rt.Pods)
	if err != nil {
		return fmt.Errorf("inspect container %q: %w", c.Name, err)
	}
	for _, pod := range pods {
		for _, now := range pod.Containers {
			if now.ID == c.ID && now.State == runtime.Running {
				return fmt.Errorf("stop container %q: %w: it is running", c.Name, runtime.ErrInUse)
			}
		}
	}
	return wait.Within(ctx, stopGrace, func(ctx context.Context) error { return rt.StopContainer(ctx, c, stopGrace) })
}
