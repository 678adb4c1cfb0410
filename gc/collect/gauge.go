package collect

import (
	"cmp"
	"context"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
)

// finally returns the context for the last steps, which also run if the run was cancelled:
// measuring the freed space, and searching for broken containers. After a cancellation, they have
// survey.SettleLimit.
func finally(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), survey.SettleLimit)
}

// gauge measures filesystems before the first and after the last removal.
type gauge struct {
	survey  *survey.Survey
	started map[string]bool     // by runtime
	before  map[string]gc.Usage // one for each filesystem, wherever it is mounted
}

func newGauge(s *survey.Survey) *gauge {
	return &gauge{survey: s, started: make(map[string]bool), before: make(map[string]gc.Usage)}
}

// start measures the filesystems of the runtime, once. Errors are ignored, because removals do not
// depend on the result.
func (g *gauge) start(ctx context.Context, rt survey.Runtime) {
	if g.started[rt.Name()] {
		return
	}
	g.started[rt.Name()] = true
	usages, err := g.survey.Usages(ctx, rt)
	if err != nil {
		return
	}
	for _, u := range usages {
		id := cmp.Or(u.ID, u.Name())
		if _, known := g.before[id]; !known {
			g.before[id] = u
		}
	}
}

func (g *gauge) finish(ctx context.Context, r *runs.Report) {
	if len(r.Removed) == 0 {
		return
	}
	ctx, done := finally(ctx)
	defer done()
	for _, before := range g.before {
		after, _ := g.survey.Settle(ctx, before)
		r.Book(before, after)
	}
}
