// Package drain stops the pods of a host phase by phase and records the result of each pod.
// The shutdown guard runs it while it holds the shutdown lock; `hostler drain` runs it too.
//
// It owns the calls to the runtimes and their deadlines. It knows nothing of logind and does
// not decide whether to drain.
package drain

import (
	"context"
	"log/slog"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

const (
	// quickList is how long the first stop waits for a new list of pods if an older list exists.
	quickList = 10 * time.Millisecond
	// listBound is the longest time of one list, firstListBound that of all attempts for the first
	// list.
	listBound      = time.Second
	firstListBound = 5 * time.Second
	// sandboxBound is the longest time to tear down one sandbox. sandboxWait is how long the next
	// phase waits for that: network plugins are critical pods.
	sandboxBound = 10 * time.Second
	sandboxWait  = 2 * time.Second
	// cancelWait is how long a cancelled drain waits for calls in flight. They are abandoned then,
	// and killMargin before any of them kills: a cancelled drain kills nothing.
	cancelWait = 2 * time.Second
	killMargin = 500 * time.Millisecond
	// resumePoll is how often a resumed drain checks whether containers with an earlier stop have
	// ended.
	resumePoll = 500 * time.Millisecond
	// newsPoll is how often a drain checks for new pods during a phase, since one pod can take the
	// whole phase.
	newsPoll = 2 * time.Second
	// requestMargin is how long a stop request continues after this process got its stop signal: a busy
	// runtime needs that long to send the signal.
	requestMargin = time.Second
	// retryPause is the first pause after a failed stop.
	retryPause = 100 * time.Millisecond
)

// Options configures a drain.
type Options struct {
	Log    *slog.Logger
	Roster *Roster
	Phases []plan.PhaseSpec // as plan.Periods gives them
	Rules  plan.Rules

	// Granted is the delay of the init system. The phases are shortened to fit into it. Zero if
	// unknown.
	Granted time.Duration
	// Start is when the first phase began: before now if the drain continues after a restart of the
	// agent.
	Start time.Time
	// First is the services that are stopped before any pod.
	First First
	// Watch is how long the drain continues after the last stop, to stop containers again that
	// something restarts. Zero for a shutdown.
	Watch time.Duration
	// SkipCritical skips pods from plan.CriticalPriority on.
	SkipCritical bool

	// Record, if not nil, is continued in a copy. Pods with an outcome are done. Pods that were
	// started without an outcome were being stopped by an earlier process. A finished record stays
	// finished unless a pod runs.
	Record *journal.Record
	// Publish receives a copy of the record at every step. It must not block: the first stop follows
	// within milliseconds, while the record is written to disk. If the power fails in between, a
	// stopped container is not started again after the boot.
	Publish func(*journal.Record)
	// UnitStops, if not nil, is called before a systemd unit is stopped for one of its containers,
	// with the names of all units that stop with it. The stop waits for it. Calls can be concurrent.
	UnitStops func(ctx context.Context, names []string)
	// Flush, if not nil, waits until the published record is on disk, or ctx ends.
	Flush func(ctx context.Context)
}

// Drain stops pods, phase by phase. One goroutine, that of Run, owns it.
type Drain struct {
	options  Options
	log      *slog.Logger
	life     *life
	schedule schedule
	calls    *calls
	lists    lists
	progress progress

	record   *journal.Record // without its pods
	pods     map[key]*pod    // all pods of the lists and the record
	entered  []*pod          // those on record, in its order
	stopping *stopping       // the services that are stopped first; nil while none are
	ordering ordering        // services that stop before containers

	observe func(from, to State) // called for each change of a container's state, if not nil: for tests
}

// progress is the position of Run in the phases.
type progress struct {
	phase       int    // that runs
	inPhase     int    // calls that stop its pods and are in progress
	noneWaiting bool   // there are none, or the phase is over
	overran     bool   // a phase ended with calls in progress
	started     int    // calls that stop pods in all, and last resorts
	queue       []*pod // whose sandboxes wait for their turn
}

// New prepares a drain.
func New(options Options) *Drain {
	d := &Drain{
		options: options, log: options.Log, life: newLife(), schedule: newSchedule(options),
		lists: lists{answers: make(chan listing)}, record: options.Record.Clone(), pods: map[key]*pod{},
		ordering: ordering{order: plan.Order{}, stops: map[string]<-chan struct{}{}},
	}
	d.calls = &calls{runtime: options.Roster, log: options.Log, life: d.life, slack: d.schedule.slack, results: make(chan result)}
	for _, record := range d.record.Pods {
		p := d.enter(record)
		switch {
		case record.Outcome == "":
			p.resumed = record.StartedAt
		case record.Outcome == journal.Left && !d.record.FinishedAt.IsZero():
			p.spent = record.StartedAt
		}
	}
	d.record.Pods = nil
	return d
}

// Cancel prevents further stops. Run waits up to two seconds for calls in flight, then returns. It
// can be called at any time, more than once.
func (d *Drain) Cancel() { d.life.cancel() }

// Abandon is Cancel without the wait.
func (d *Drain) Abandon() {
	d.life.abandon()
	d.life.cancel()
}

// Over is closed when Run returns.
func (d *Drain) Over() <-chan struct{} { return d.life.over }

// Idle is closed when all sandboxes are torn down, too, or abandoned.
func (d *Drain) Idle() <-chan struct{} { return d.life.idle }

// Record returns the result. Call it after Over is closed.
func (d *Drain) Record() *journal.Record { return d.record.Clone() }

// Deadline is when Run returns at the latest, even if calls hang: after the phases, their slack, a
// hanging stop and teardown, and a list.
func (d *Drain) Deadline() time.Time { return d.schedule.deadline }

// ReportBound returns the part of the granted time that is left for a final status.
func (d *Drain) ReportBound() time.Duration { return 2 * d.schedule.slack }

// Run drains until all pods are stopped, the phases are over, the drain is cancelled, or ctx ends.
// The record is then complete. If ctx ended, another process can continue it.
func (d *Drain) Run(ctx context.Context) {
	if !d.record.Trigger.LivesOn() {
		d.life.leaving = ctx.Done()
	}
	d.calls.begin(ctx, d.options.UnitStops)
	defer d.calls.end()
	d.publish()
	known, _ := d.options.Roster.Last()
	if d.options.First.Services != nil && len(d.record.StoppedFirst) > 0 { // by an earlier process: perhaps no runtime answers
		d.adopt(ctx, known)
	}
	d.askOrder(ctx, known)
	d.firstList(ctx)
	d.awaitOrder(ctx)
	d.stopFirst(ctx)
	for i := range d.schedule.phases {
		d.runPhase(ctx, i)
		if d.life.ended(ctx) {
			break
		}
	}
	close(d.life.last)
	d.awaitStuck(ctx, d.schedule.deadline)
	d.watch(ctx)
	if d.life.ended(ctx) {
		d.awaitCalls(ctx)
	}
	if ctx.Err() == nil {
		d.conclude()
	} else { // another process continues
		d.leaveToNext()
	}
	d.record = d.snapshot() // nobody changes it from here on
	d.options.Publish(d.record.Clone())
}
