package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// Containers removes dead containers.
type Containers struct {
	*loop
	inForce[gc.ContainerPolicy]
}

// NewContainers checks the policy and the options.
func NewContainers(policy gc.ContainerPolicy, options Options) (*Containers, error) {
	c := &Containers{}
	if err := errors.Join(c.SetPolicy(policy), options.complete()); err != nil {
		return nil, err
	}
	c.loop = newLoop(options, gc.Options{Containers: true})
	c.work = c.collect
	return c, nil
}

func (c *Containers) collect(ctx context.Context, o gc.Options, report *Report, progress func(Progress)) {
	survey := c.options.Survey
	facts, failed := survey.look(ctx, o)
	for _, err := range failed {
		report.fail("runtime "+err.Runtime, err)
	}
	decisions := gc.Plan(facts, gc.Policy{Containers: c.Policy()}, time.Now(), o)
	runtimes := byName(survey.Runtimes())
	gauge := newGauge(survey)
	down := make(map[string]bool)
	total := 0
	for _, d := range decisions.Containers {
		if d.Action == gc.Keep {
			report.Kept[d.Reason]++
			continue
		}
		total++
	}
	done := 0
	report.Ended = endNothingLeft
	for _, d := range decisions.Containers[:total] {
		if ctx.Err() != nil {
			report.Ended = whyDone(ctx)
			break
		}
		rt := runtimes[d.Runtime]
		if rt == nil || down[d.Runtime] {
			report.Ended = endDown
			continue
		}
		gauge.start(ctx, rt)
		_, err := within(ctx, removeTimeout, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, rt.RemoveContainer(ctx, *d.Container)
		})
		done++
		step := Progress{Removal: containerRemoval(d), Action: gc.Remove, Done: done, Total: total}
		c.settle(ctx, rt, &step, err, report, down)
		progress(step)
	}
	gauge.finish(ctx, report)
}

// settle books the outcome of one removal.
func (c *Containers) settle(ctx context.Context, rt Runtime, step *Progress, err error, report *Report, down map[string]bool) {
	switch {
	case err == nil:
		report.Removed = append(report.Removed, step.Removal)
		c.options.Log.Info("container removed", "container", step.Names[0], "pod", step.Pod, "id", step.ID, "runtime", step.Runtime, "reason", step.Reason)
		return
	case errors.Is(err, runtime.ErrInUse):
		report.Kept[gc.Running]++ // started again since the plan
	case ctx.Err() != nil:
		step.Err = err
	case isDown(ctx, rt, err):
		down[step.Runtime] = true
		report.fail("runtime "+step.Runtime, &RuntimeError{Runtime: step.Runtime, Err: err})
		step.Err = err
	default:
		report.fail("container "+step.ID, fmt.Errorf("remove container %s of pod %s: %w", step.Names[0], step.Pod, err))
		step.Err = err
	}
	step.Action = gc.Keep
}

func containerRemoval(d gc.ContainerDecision) Removal {
	return Removal{Kind: KindContainer, ID: d.ID, Names: []string{d.Name}, Pod: d.Pod, Runtime: d.Runtime, Reason: d.Reason}
}

func byName(runtimes []Runtime) map[string]Runtime {
	m := make(map[string]Runtime, len(runtimes))
	for _, rt := range runtimes {
		m[rt.Name()] = rt
	}
	return m
}
