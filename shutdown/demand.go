package shutdown

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// Errors of Drain that callers branch on.
var (
	// ErrDelegated: another owner guards the shutdown of this host, and stops
	// its pods itself.
	ErrDelegated = errors.New("another owner handles the shutdown of this host")
	// ErrSwitchedOff: the configuration leaves no time to stop anything.
	ErrSwitchedOff = errors.New("shutdown protection is disabled in the configuration")
	// ErrShuttingDown: the host goes down already, and its pods with it.
	ErrShuttingDown = errors.New("the host is already shutting down")
	// ErrDraining: an operator's drain runs already.
	ErrDraining = errors.New("another drain is running; wait until it ends")
	// ErrCancelled: the drain was cancelled before its end.
	ErrCancelled = errors.New("the drain was cancelled")
)

// Drain stops the pods in their phases without an announcement, and returns
// how that went. Run must be running. With journal.TriggerServiceStop it enters the
// state Draining, joins a drain that runs, and continues with one that was
// released, for new pods; it returns when sandboxes are torn down, too, those
// of drains before included, and ctx bounds only the wait. For a person it is
// DrainManually without progress.
//
// ErrDelegated where another owner would do it or undo it, ErrSwitchedOff where
// the configuration has no phases (an operator's drain takes the defaults),
// ErrCancelled with the record so far.
func (g *Guard) Drain(ctx context.Context, trigger journal.Trigger) (journal.Record, error) {
	switch trigger {
	case journal.TriggerServiceStop:
		return g.demand(ctx, trigger, func(answer chan outcome) { g.drainForStop(answer) })
	case journal.TriggerManual, journal.TriggerManualAll:
		return g.DrainManually(ctx, trigger == journal.TriggerManualAll, func(*journal.Record) {})
	}
	return journal.Record{}, fmt.Errorf("drain: unknown trigger %q", trigger)
}

// DrainManually is an operator's drain: of all pods, or of all but critical ones. It
// leaves state, lock and journal alone, and ends with ctx; an announced shutdown
// takes over from it. progress is given the record at every step, which must not
// be changed; it must not block. Pods that appear meanwhile are stopped, too.
//
// ErrDelegated, ErrShuttingDown or ErrDraining where it is refused, ErrCancelled
// with the record so far.
func (g *Guard) DrainManually(ctx context.Context, all bool, progress func(*journal.Record)) (journal.Record, error) {
	trigger := journal.TriggerManual
	if all {
		trigger = journal.TriggerManualAll
	}
	return g.demand(ctx, trigger, func(answer chan outcome) { g.drainManually(ctx, trigger, progress, answer) })
}

// demand has Run's goroutine begin a drain, and waits for its end.
func (g *Guard) demand(ctx context.Context, trigger journal.Trigger, begin func(answer chan outcome)) (journal.Record, error) {
	answer := make(chan outcome, 1)
	if !g.send(ctx, func() { begin(answer) }) {
		return journal.Record{}, fmt.Errorf("drain: %w", context.Cause(ctx))
	}
	var o outcome
	select {
	case o = <-answer:
	case <-ctx.Done():
		if trigger == journal.TriggerServiceStop {
			return journal.Record{}, fmt.Errorf("drain: %w", context.Cause(ctx))
		}
		o = <-answer // winds down by itself
	}
	for _, torn := range o.teardowns {
		select {
		case <-torn:
		case <-ctx.Done():
		}
	}
	if o.err != nil {
		return o.record, fmt.Errorf("drain: %w", o.err)
	}
	return o.record, nil
}

func (g *Guard) drainForStop(answer chan outcome) {
	switch state := g.status.State; {
	case state == Delegated:
		answer <- outcome{err: fmt.Errorf("%w: %s", ErrDelegated, g.status.Reason)}
		return
	case len(g.options.Phases) == 0:
		answer <- outcome{err: ErrSwitchedOff}
		return
	case state != Draining:
		g.begin(journal.TriggerServiceStop, "", "systemd is shutting down")
	case g.episode.cancelling:
		g.episode.resume(g.episode.kind)
	}
	g.arming.final = true
	g.episode.waiters = append(g.episode.waiters, answer)
}

// returnWatch is how long an operator's drain watches whether something starts containers again: a
// service that systemd starts again does so after 0.1 s unless it says another time.
const returnWatch = 3 * time.Second

func (g *Guard) drainManually(ctx context.Context, trigger journal.Trigger, progress func(*journal.Record), answer chan outcome) {
	if err := g.refusal(); err != nil {
		answer <- outcome{err: err}
		return
	}
	if g.options.Journal.Current() == nil {
		g.options.Journal.Settle() // what was cancelled a moment ago, so that it is waived, too
		g.reviver.revive(g.ctx)
	}
	g.reviver.endFollowing() // what a person stops has not failed
	g.options.Journal.WaiveRestarts("an operator drained the host", func(priority int32) bool {
		return trigger == journal.TriggerManual && priority >= plan.CriticalPriority
	})
	if trigger == journal.TriggerManualAll { // else some are of pods that are spared
		g.options.Journal.WaiveUnits(func(string) bool { return true })
	}
	record := &journal.Record{BootID: g.options.Journal.BootID(), Trigger: trigger, StartedAt: time.Now(), Pods: []journal.PodRecord{}}
	run := g.ctx
	var shown *journal.Record // owned as the status is, in which another drain may have taken its place
	show := func(r *journal.Record) {
		g.send(run, func() {
			if shown == nil || g.status.ManualDrain == shown {
				g.change(func(s *Status) { s.ManualDrain, shown = r, r })
			}
		})
		progress(r)
	}
	d := drain.New(drain.Options{
		Log: g.log, Roster: g.roster, Phases: g.manualPhases(), Rules: g.options.Rules,
		Start: record.StartedAt, SkipCritical: trigger == journal.TriggerManual,
		Record: record, Publish: show, UnitStops: g.waiveUnits, Watch: returnWatch,
	})
	g.manual = d
	stop := context.AfterFunc(ctx, func() {
		g.send(run, func() {
			if g.manual == d {
				d.Cancel()
				g.manual = nil
			}
		})
	})
	go func() {
		d.Run(run)
		stop()
		g.send(run, func() {
			if g.manual == d {
				g.manual = nil
			}
			if g.status.ManualDrain == shown {
				g.change(func(s *Status) { s.ManualDrain = nil })
			}
		})
		record := d.Record()
		o := outcome{record: *record, teardowns: []<-chan struct{}{d.Idle()}}
		if !record.CancelledAt.IsZero() || run.Err() != nil {
			o.err = ErrCancelled
		}
		answer <- o
	}()
}

// EndManualDrain ends an operator's drain, if one runs, as the end of its caller would. It
// returns when the drain has wound down, which takes two seconds at the most, or
// when ctx ends.
func (g *Guard) EndManualDrain(ctx context.Context) {
	var over <-chan struct{}
	g.send(ctx, func() {
		if g.manual != nil {
			g.manual.Cancel()
			over, g.manual = g.manual.Over(), nil
		}
	})
	if over != nil {
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
}

// Refusal reports why an operator's drain would be refused now; nil if it would not.
func (g *Guard) Refusal(ctx context.Context) error {
	var err error
	if !g.send(ctx, func() { err = g.refusal() }) {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}

func (g *Guard) refusal() error {
	switch state := g.status.State; {
	case state == Delegated:
		return fmt.Errorf("%w: %s", ErrDelegated, g.status.Reason)
	case state == Draining, state == Released:
		return ErrShuttingDown
	case g.manual != nil:
		return ErrDraining
	}
	return nil
}

// PlanManualDrain is what an operator's drain would do now, and which pods it would
// leave alone because they are critical. Where a runtime does not answer, the
// plan shows what is known of it and the error says so.
func (g *Guard) PlanManualDrain(ctx context.Context, all bool) (p plan.Plan, spared []plan.PlannedPod, err error) {
	ctx, cancel := context.WithTimeout(ctx, listBound)
	defer cancel()
	pods, err := g.roster.List(ctx)
	if err != nil {
		err = fmt.Errorf("plan the drain: %w", err)
	}
	p = plan.New(g.manualPhases(), pods, g.options.Rules, 0)
	if all {
		return p, []plan.PlannedPod{}, err
	}
	p, spared = plan.WithoutCritical(p)
	return p, spared, err
}

// manualPhases are the phases of a drain that a person requests: those of the
// defaults where shutdown protection is switched off.
func (g *Guard) manualPhases() []plan.PhaseSpec {
	if len(g.options.Phases) > 0 {
		return g.options.Phases
	}
	return plan.Defaults()
}
