package collect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/pace"
	"hostler.io/hostler/gc/podlogs"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
)

// containerRun is one run of Containers. One goroutine owns it.
type containerRun struct {
	loop     *runs.Loop
	survey   *survey.Survey
	log      *slog.Logger
	report   *runs.Report
	progress func(runs.Progress)
	gauge    *gauge            // nil if the caller measures
	kept     map[gc.Reason]int // number of kept objects, by reason

	runtimes map[string]survey.Runtime
	down     map[string]bool    // runtimes that stopped answering
	staying  map[gc.PodKey]bool // pods with a container whose removal failed
	patience learned[pace.Patience]
	done     int
	total    int
}

// removal is one object to remove from a runtime.
type removal struct {
	runs.Removal
	title  string // name of the pod, for display
	pod    gc.PodKey
	inUse  gc.Reason // the reason to keep it if the runtime reports that it is in use
	remove func(ctx context.Context, rt survey.Runtime, wait *pace.Patience) error
}

func (r *containerRun) scan(ctx context.Context, p gc.ContainerPolicy, o gc.Options, report *runs.Report) gc.Decisions {
	facts, failed := r.survey.Scan(ctx, o)
	o.LeaveAlone = r.loop.ExcludedRuntimes(r.report)
	for _, err := range failed {
		report.FailRuntime(err.Runtime, err)
	}
	if facts.LogsErr != nil {
		report.Fail("logs", fmt.Errorf("find logs: %w", facts.LogsErr))
	}
	return gc.Plan(facts, gc.Policy{Containers: p}, time.Now(), o)
}

// countKept counts the kept objects by reason, and the objects to remove.
func (r *containerRun) countKept(d gc.Decisions) {
	count := func(action gc.Action, reason gc.Reason) {
		if action == gc.Remove {
			r.total++
			return
		}
		r.kept[reason]++
	}
	for _, c := range d.Containers {
		count(c.Action, c.Reason)
	}
	for _, p := range d.Pods {
		count(p.Action, p.Reason)
	}
	for _, l := range d.Logs {
		count(l.Action, l.Reason)
	}
}

func (r *containerRun) containers(ctx context.Context, decisions []gc.ContainerDecision) {
	var list []removal
	for _, d := range decisions {
		if d.Action == gc.Remove {
			list = append(list, removal{
				Removal: runs.Removal{Kind: runs.KindContainer, ID: d.ID, Names: []string{d.Name}, Pod: d.Pod, Runtime: d.Runtime, Reason: d.Reason},
				title:   d.Pod,
				pod:     gc.PodKey{Runtime: d.Runtime, ID: d.Container.PodID}, inUse: gc.Running, // it was started after the plan was made
				remove: func(ctx context.Context, rt survey.Runtime, wait *pace.Patience) error {
					return removeContainer(ctx, rt, *d.Container, wait)
				},
			})
		}
	}
	r.carryOut(ctx, list)
}

func (r *containerRun) pods(ctx context.Context, decisions []gc.PodDecision) {
	var list []removal
	for _, d := range decisions {
		key := gc.PodKey{Runtime: d.Runtime, ID: d.ID}
		switch {
		case d.Action == gc.Keep:
		case r.staying[key]:
			r.kept[gc.InUse]++
		default:
			list = append(list, removal{
				Removal: runs.Removal{Kind: runs.KindPod, ID: d.ID, Names: []string{d.Title()}, Runtime: d.Runtime, Reason: d.Reason},
				title:   d.Title(),
				pod:     key, inUse: gc.InUse,
				remove: func(ctx context.Context, rt survey.Runtime, wait *pace.Patience) error {
					return wait.Within(ctx, 0, func(ctx context.Context) error { return rt.RemovePod(ctx, *d.Pod) })
				},
			})
		}
	}
	r.carryOut(ctx, list)
}

// carryOut removes objects in order, one runtime after the other. Within a runtime it runs as many
// removals in parallel as the runtime handles well.
func (r *containerRun) carryOut(ctx context.Context, list []removal) {
	var names []string
	byRuntime := make(map[string][]removal)
	for _, one := range list {
		if byRuntime[one.Runtime] == nil {
			names = append(names, one.Runtime)
		}
		byRuntime[one.Runtime] = append(byRuntime[one.Runtime], one)
	}
	for _, name := range names {
		rt := r.runtimes[name]
		if rt == nil || r.down[name] {
			r.report.Ended = string(endDown)
			continue
		}
		if r.gauge != nil {
			r.gauge.start(ctx, rt)
		}
		wait := r.patience.of(name)
		left := pace.Each(ctx, byRuntime[name],
			func(one removal) error { return one.remove(ctx, rt, wait) },
			func(one removal, err error) (goOn bool) {
				r.settle(ctx, rt, one, err)
				return !r.down[name]
			})
		if left > 0 {
			if r.report.Ended = string(endDown); ctx.Err() != nil {
				r.report.Ended = runs.WhyDone(ctx)
			}
		}
	}
}

// settle records the result of one removal.
func (r *containerRun) settle(ctx context.Context, rt survey.Runtime, one removal, err error) {
	r.done++
	step := runs.Progress{Removal: one.Removal, Action: gc.Keep, Done: r.done, Total: max(r.total, r.done)}
	switch {
	case err == nil:
		step.Action = gc.Remove
		r.booked(one.Removal)
	case errors.Is(err, runtime.ErrInUse):
		r.kept[one.inUse]++
	case ctx.Err() != nil:
		step.Err = err
	case isDown(ctx, rt, err):
		if !r.down[rt.Name()] {
			r.down[rt.Name()] = true
			r.report.Ended = string(endDown)
			r.report.FailRuntime(rt.Name(), runtime.MemberError{Runtime: rt.Name(), Err: err})
		}
		step.Err = err
	default:
		// The runtime's error names the operation and the object.
		r.report.Fail(one.Kind+" "+one.ID, fmt.Errorf("pod %s: %w", one.title, err))
		step.Err = err
	}
	if step.Action == gc.Keep {
		r.staying[one.pod] = true
	}
	r.progress(step)
}

// loggedRemovals is how many removals of a run are logged at Info. All are logged at Debug, and the
// total is in the summary.
const loggedRemovals = 100

func (r *containerRun) booked(removed runs.Removal) {
	r.report.Removed = append(r.report.Removed, removed)
	level := slog.LevelInfo
	if len(r.report.Removed) > loggedRemovals {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{slog.String(removed.Kind, removed.Names[0])}
	if removed.Pod != "" {
		attrs = append(attrs, slog.String("pod", removed.Pod))
	}
	if removed.Kind != runs.KindLog {
		attrs = append(attrs, slog.String("id", removed.ID), slog.String("runtime", removed.Runtime))
	}
	attrs = append(attrs, slog.String("reason", string(removed.Reason)))
	r.log.LogAttrs(context.Background(), level, removed.Kind+" removed", attrs...)
}

// logs removes the logs of removed pods. It queries the runtimes again right before, because new
// pods may exist.
func (r *containerRun) logs(ctx context.Context, p gc.ContainerPolicy, o gc.Options, planned []gc.LogDecision) {
	if r.survey.Logs == nil || len(planned) == 0 || planned[0].Action == gc.Keep || ctx.Err() != nil {
		return
	}
	agreed := make(map[string]bool, len(planned))
	for _, d := range planned {
		agreed[d.Path] = d.Action == gc.Remove
	}
	again := runs.NewReport("")
	now := r.scan(ctx, p, o, again).Logs
	r.report.TakeTroubles(again)
	for _, d := range now {
		if d.Action == gc.Keep || !agreed[d.Path] {
			continue
		}
		if ctx.Err() != nil {
			r.report.Ended = runs.WhyDone(ctx)
			return
		}
		r.done++
		step := runs.Progress{
			Removal: runs.Removal{Kind: runs.KindLog, ID: d.Path, Names: []string{d.Path}, Pod: d.Pod, Reason: d.Reason, SizeBytes: d.SizeBytes},
			Action:  gc.Keep, Done: r.done, Total: max(r.total, r.done),
		}
		switch err := r.survey.Logs.Remove(ctx, *d.Log); {
		case err == nil:
			step.Action = gc.Remove
			r.booked(step.Removal)
		case errors.Is(err, podlogs.ErrChanged):
			r.kept[gc.TooYoung]++
		case ctx.Err() != nil:
			step.Err = err
		default:
			r.report.Fail("log "+d.Path, err)
			step.Err = err
		}
		r.progress(step)
	}
}
