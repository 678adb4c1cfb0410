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

// Containers removes dead containers, then the sandboxes of dead pods, then the logs of removed
// pods.
type Containers struct {
	*runs.Loop
	options runs.Options
	effectivePolicy[gc.ContainerPolicy]
}

// NewContainers validates the policy and the options.
func NewContainers(policy gc.ContainerPolicy, options runs.Options) (*Containers, error) {
	c := &Containers{options: options, effectivePolicy: effectivePolicy[gc.ContainerPolicy]{policy: policy}}
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

// first collects containers at the start of a run of images that lacks space, because dead
// containers also use images. It reports whether any was removed. It runs within the turn of that
// run and writes into its report. Otherwise it follows the rules of a run of containers.
func (c *Containers) first(ctx context.Context, report *runs.Report, progress func(runs.Progress)) bool {
	before := len(report.Removed)
	r := c.newRun(report, progress, nil)
	r.kept = make(map[gc.Reason]int) // Kept in the report counts images
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

// stopGrace is the grace period of a container in an unknown state that has none of its own. It is
// the default of Kubernetes.
const stopGrace = 30 * time.Second

// removeContainer removes a container. If its state is unknown, it may run, so it is stopped first.
func removeContainer(ctx context.Context, rt survey.Runtime, c runtime.Container, wait *pace.Patience) error {
	if c.State == runtime.Unknown {
		if err := stopUnknown(ctx, rt, c, wait); err != nil {
			return err
		}
	}
	return wait.Within(ctx, 0, func(ctx context.Context) error { return rt.RemoveContainer(ctx, c) })
}

// stopUnknown stops a container. It returns runtime.ErrInUse if the runtime now lists the container
// as running, for example after a restart of the runtime.
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
