package shutdown

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// Errors of Drain and DrainManually.
var (
	// ErrDelegated: another owner handles the shutdown of this host.
	ErrDelegated = errors.New("another owner handles the shutdown of this host")
	// ErrSwitchedOff: no phase is configured.
	ErrSwitchedOff = errors.New("shutdown protection is disabled in the configuration")
	// ErrShuttingDown: a shutdown is already stopping the pods.
	ErrShuttingDown = errors.New("the host is already shutting down")
	// ErrDraining: a manual drain is already running.
	ErrDraining = errors.New("another drain is running; wait until it ends")
	// ErrDrainsItself: a drain that the host decided is already running.
	ErrDrainsItself = errors.New("the host drains itself")
	// ErrUnstored: the drain ended early, because what it stops could not be stored.
	ErrUnstored = errors.New("what is stopped cannot be stored")
	// ErrCancelled: the drain was cancelled before its end.
	ErrCancelled = errors.New("the drain was cancelled")
)

// Drain stops the pods in phases without an announced shutdown, and returns the record. Run must be
// running. With journal.TriggerServiceStop, Drain enters the state Draining. It joins a running
// drain, or continues a released one for new pods. It returns when the sandboxes of all drains are
// torn down, too. ctx bounds only the wait. For manual triggers, it is DrainManually without
// progress.
//
// Errors: ErrDelegated if another owner handles the shutdown; ErrSwitchedOff if the configuration
// has no phases, except that a manual drain uses the defaults; ErrCancelled with the record so far.
func (g *Guard) Drain(ctx context.Context, trigger journal.Trigger) (journal.Record, error) {
	switch trigger {
	case journal.TriggerServiceStop:
		return g.demand(ctx, trigger, func(answer chan outcome) { g.drainForStop(answer) })
	case journal.TriggerManual, journal.TriggerManualAll:
		return g.DrainManually(ctx, trigger == journal.TriggerManualAll, func(*journal.Record) {})
	}
	return journal.Record{}, fmt.Errorf("drain: unknown trigger %q", trigger)
}

// Demand is a drain after which the host keeps running.
type Demand struct {
	Trigger journal.Trigger // a trigger that LivesOn
	Cause   string          // if the trigger is ByHost
	// Began is the start of an interrupted or incomplete drain to continue; zero for a new one.
	Began time.Time
	// All stops critical pods, too, although the trigger does not.
	All bool
}

// skipsCritical reports whether the drain leaves critical pods running.
func (d Demand) skipsCritical() bool { return d.Trigger.SkipsCritical() && !d.All }

// DrainManually is DrainOnDemand for a user, of all pods or of all except critical ones.
func (g *Guard) DrainManually(ctx context.Context, all bool, progress func(*journal.Record)) (journal.Record, error) {
	trigger := journal.TriggerManual
	if all {
		trigger = journal.TriggerManualAll
	}
	return g.DrainOnDemand(ctx, Demand{Trigger: trigger}, progress)
}

// DrainOnDemand runs a drain that a user requested or that the host decided. It does not change the
// state, the lock or the record of shutdowns. It ends when ctx ends. An announced shutdown takes
// over from it. It calls progress with the record at every step. progress must not modify the
// record and must not block. Pods that appear during the drain are stopped, too.
//
// A drain that the host decided stops no pod whose stop is not on disk.
//
// Errors: ErrDelegated, ErrShuttingDown, ErrDraining or ErrDrainsItself if it is rejected; ErrCancelled or
// ErrUnstored with the record so far.
func (g *Guard) DrainOnDemand(ctx context.Context, d Demand, progress func(*journal.Record)) (journal.Record, error) {
	return g.demand(ctx, d.Trigger, func(answer chan outcome) { g.drainOnDemand(ctx, d, progress, answer) })
}

// demand starts a drain in Run's goroutine and waits for the result.
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
		o = <-answer // the drain ends by itself
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

// ReturnWatch is how long a manual drain watches for containers that are started again. By default,
// systemd restarts a service after 0.1 s.
const ReturnWatch = 3 * time.Second

func (g *Guard) drainOnDemand(ctx context.Context, demand Demand, progress func(*journal.Record), answer chan outcome) {
	if err := g.refusal(); err != nil {
		answer <- outcome{err: err}
		return
	}
	if g.options.Journal.Current() == nil {
		g.options.Journal.Settle() // settle a drain that was just cancelled, so that its restarts are waived, too
		g.reviver.revive(g.ctx)
	}
	g.reviver.endFollowing() // a service that the drain stops has not failed
	start := time.Now()
	record := &journal.Record{BootID: g.options.Journal.BootID(), Trigger: demand.Trigger, Cause: demand.Cause, StartedAt: cmp.Or(demand.Began, start), Pods: []journal.PodRecord{}}
	if r := g.options.Journal.Drained(); r != nil && r.StartedAt.Equal(demand.Began) {
		record = r.Reopened()
	}
	trigger, units := demand.Trigger, g.waiveUnits
	g.options.Journal.BeginDrain(record, func(priority int32) bool {
		return demand.skipsCritical() && priority >= plan.CriticalPriority
	})
	if trigger == journal.TriggerManualAll { // otherwise keep the units: pods that are not drained may belong to them
		g.options.Journal.WaiveUnits(func(string) bool { return true })
	}
	var store func(context.Context) error
	if trigger.ByHost() {
		store = g.stored
		units = func(ctx context.Context, names []string) error { return g.holdUnits(ctx, record, names) }
	}
	run := g.ctx
	var shown *journal.Record // the value in the status, unless another drain has replaced it
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
		Start: start, SkipCritical: demand.skipsCritical(),
		Record: record, Publish: show, UnitStops: units, Watch: ReturnWatch, Store: store,
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
		switch err := d.Unstored(); {
		case err != nil:
			o.err = fmt.Errorf("%w: %w", ErrUnstored, err)
		case !record.CancelledAt.IsZero(), run.Err() != nil:
			o.err = ErrCancelled
		}
		answer <- o
	}()
}

// storeBound bounds the wait for the record of a drain that the host decided.
const storeBound = 5 * time.Second

// stored waits until the journal is on disk.
func (g *Guard) stored(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storeBound, fmt.Errorf("the disk did not answer within %v", storeBound))
	defer cancel()
	return g.options.Journal.Sync(ctx)
}

// EndManualDrain cancels a running manual drain. It returns when the drain has ended, after two
// seconds, or when ctx ends.
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

// UndoDrain starts the containers again that the drain with this start time stopped, as after a
// cancelled shutdown. It returns whether there was such a drain.
func (g *Guard) UndoDrain(ctx context.Context, startedAt time.Time) (undone bool) {
	g.send(ctx, func() {
		if undone = g.options.Journal.UndoDrain(startedAt); !undone {
			return
		}
		if g.options.Journal.Current() == nil { // otherwise the end of the current shutdown starts them
			g.reviver.revive(g.ctx)
		}
		g.options.Settled()
	})
	return undone
}

// Refusal returns why a manual drain would be rejected now; nil if it would not.
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
	case g.manual != nil && g.status.ManualDrain != nil && g.status.ManualDrain.Trigger.ByHost():
		return fmt.Errorf("%w: %s", ErrDrainsItself, g.status.ManualDrain.Cause)
	case g.manual != nil:
		return ErrDraining
	}
	return nil
}

// PlanManualDrain returns what a manual drain would do now, and the critical pods that it would not
// stop. If a runtime does not answer, the plan has its last known pods, and the error names the
// runtime.
func (g *Guard) PlanManualDrain(ctx context.Context, all bool) (p plan.Plan, critical []plan.PlannedPod, err error) {
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
	p, critical = plan.WithoutCritical(p)
	return p, critical, err
}

// manualPhases returns the phases of a manual drain. If shutdown protection is disabled, they are
// the defaults.
func (g *Guard) manualPhases() []plan.PhaseSpec {
	if len(g.options.Phases) > 0 {
		return g.options.Phases
	}
	return plan.Defaults()
}
