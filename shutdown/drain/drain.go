// Package drain stops the pods of a host phase by phase, and records the result of each pod. The
// shutdown guard runs it while it holds the shutdown lock. `hostler drain` runs it, too.
//
// It owns the calls to the runtimes and their deadlines. It does not depend on logind, and does not
// decide whether to drain.
package drain

import (
	"context"
	"log/slog"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

const (
	// quickList is how long the first stop waits for a new list of pods if an older one exists.
	quickList = 10 * time.Millisecond
	// listBound bounds one list. firstListBound bounds all attempts for the first list.
	listBound      = time.Second
	firstListBound = 5 * time.Second
	// sandboxBound bounds the teardown of one sandbox. sandboxWait is how long the next phase waits
	// for it: network plug-ins, which a teardown needs, are critical pods.
	sandboxBound = 10 * time.Second
	sandboxWait  = 2 * time.Second
	// cancelWait is how long a cancelled drain waits for calls in progress. After that it abandons
	// them. It abandons a call earlier, killMargin before the call would kill: a cancelled drain
	// kills nothing.
	cancelWait = 2 * time.Second
	killMargin = 500 * time.Millisecond
	// resumePoll is the interval at which a resumed drain checks whether containers that an earlier
	// process stopped have ended.
	resumePoll = 500 * time.Millisecond
	// newsPoll is the interval at which a drain checks for new pods during a phase, because one pod
	// can take the whole phase.
	newsPoll = 2 * time.Second
	// requestMargin is how long a stop request continues after this process got its stop signal. A
	// busy runtime needs that long to send the signal.
	requestMargin = time.Second
	// retryPause is the first pause after a failed stop.
	retryPause = 100 * time.Millisecond
)

// Options configures a drain.
type Options struct {
	Log    *slog.Logger
	Roster *Roster
	Phases []plan.PhaseSpec // from plan.Periods
	Rules  plan.Rules

	// Granted is the delay of the init system. The phases are shortened to fit into it. Zero:
	// unknown.
	Granted time.Duration
	// Start is when the first phase began. It is in the past if the drain continues after a restart
	// of the agent.
	Start time.Time
	// First is the services that are stopped before any pod.
	First First
	// Watch is how long the drain continues after the last stop, to stop containers again that are
	// started again. Zero for a shutdown.
	Watch time.Duration
	// SkipCritical skips pods with at least plan.CriticalPriority.
	SkipCritical bool

	// Record, if not nil, is copied and continued. Pods with an outcome are finished. Started pods
	// without an outcome were being stopped by an earlier process. A finished record stays finished
	// unless a pod runs.
	Record *journal.Record
	// Publish receives a copy of the record at every step. It must not block: the first stop
	// follows within milliseconds, while the record is written to disk. If the power fails in
	// between, a stopped container is not started again after the boot.
	Publish func(*journal.Record)
	// UnitStops, if not nil, is called before a systemd unit is stopped because it runs a
	// container. It receives the names of all units that stop with it. The stop waits for it. After
	// an error, the drain stops nothing more, as after one of Store. Calls may be concurrent.
	UnitStops func(ctx context.Context, names []string) error
	// Flush, if not nil, waits until the published record is on disk, or ctx ends.
	Flush func(ctx context.Context)
	// Store, if not nil, is called before each stop of a pod, and returns nil once the published
	// record is on disk. After an error, the drain stops no more pods: Unstored returns the error. It
	// is nil for a shutdown, which goes on whatever the disk does. Calls may be concurrent.
	Store func(ctx context.Context) error
}

// Drain stops pods, phase by phase. Run's goroutine owns it.
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
	entered  []*pod          // the pods in the record, in its order
	stopping *stopping       // running stop of the services that are stopped first; nil if none
	ordering ordering        // services that stop before containers

	observe func(from, to State) // called for each change of a container's state; for tests
}

// progress is the current position in the phases.
type progress struct {
	phase       int    // current phase
	inPhase     int    // running stops of its pods
	noneWaiting bool   // inPhase is 0, or the phase is over
	overran     bool   // a phase ended with running calls
	started     int    // number of stops of pods so far, including last resorts
	queue       []*pod // pods whose sandboxes wait for teardown
}

// New returns a drain. Call Run to start it.
func New(options Options) *Drain {
	d := &Drain{
		options: options, log: options.Log, life: newLife(), schedule: newSchedule(options),
		lists: lists{answers: make(chan listing)}, record: options.Record.Clone(), pods: map[key]*pod{},
		ordering: ordering{order: plan.Order{}, stops: map[string]<-chan struct{}{}},
	}
	d.calls = &calls{runtime: options.Roster, log: options.Log, life: d.life, store: options.Store, slack: d.schedule.slack, last: d.schedule.last(), results: make(chan result)}
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

// Cancel prevents further stops. Run waits up to two seconds for calls in progress, then returns.
// Cancel may be called at any time, more than once.
func (d *Drain) Cancel() { d.life.cancel() }

// Abandon is Cancel without the wait.
func (d *Drain) Abandon() {
	d.life.abandon()
	d.life.cancel()
}

// Over is closed when Run returns.
func (d *Drain) Over() <-chan struct{} { return d.life.over }

// Idle is closed when all sandboxes are torn down or abandoned.
func (d *Drain) Idle() <-chan struct{} { return d.life.idle }

// Record returns the result. Call it only after Over is closed.
func (d *Drain) Record() *journal.Record { return d.record.Clone() }

// Unstored returns why the drain has ended early, because a stop could not be stored; nil if that is
// not why. Call it only after Over is closed.
func (d *Drain) Unstored() error {
	if err := d.calls.unstored.Load(); err != nil {
		return *err
	}
	return nil
}

// Deadline is when Run returns at the latest, even if calls hang. It includes the phases and their
// slack, a hanging stop and teardown, and a list.
func (d *Drain) Deadline() time.Time { return d.schedule.deadline }

// ReportBound returns the part of the granted time that is left for the final status.
func (d *Drain) ReportBound() time.Duration { return 2 * d.schedule.slack }

// Run drains until all pods are stopped, the phases are over, the drain is cancelled, or ctx ends.
// Then the record is complete. If ctx ended, another process can continue it.
func (d *Drain) Run(ctx context.Context) {
	if !d.record.Trigger.LivesOn() {
		d.life.leaving = ctx.Done()
	}
	d.calls.begin(ctx, d.options.UnitStops)
	defer d.calls.end()
	d.publish()
	known, _ := d.options.Roster.Last()
	if d.options.First.Services != nil && len(d.record.StoppedFirst) > 0 { // by an earlier process, so runtimes may not answer
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
	} else { // another process continues the drain
		d.leaveToNext()
	}
	d.record = d.snapshot() // not modified from here on
	d.options.Publish(d.record.Clone())
}
