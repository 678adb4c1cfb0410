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
	// quickList is how long the first stop waits for a fresh list of pods where
	// an older one is at hand.
	quickList = 10 * time.Millisecond
	// listBound is how long one list may take, firstListBound how long the
	// first one is tried for.
	listBound      = time.Second
	firstListBound = 5 * time.Second
	// sandboxBound is how long tearing down one sandbox may take, sandboxWait
	// how long the next phase waits for it: network plugins are critical pods.
	sandboxBound = 10 * time.Second
	sandboxWait  = 2 * time.Second
	// cancelWait is how long calls in flight are waited for after a cancellation. They are given
	// up then, and killMargin before any of them kills: a cancelled drain kills nothing.
	cancelWait = 2 * time.Second
	killMargin = 500 * time.Millisecond
	// resumePoll is how often a drain that continues after a restart of the agent
	// checks whether containers have ended whose stop was requested before.
	resumePoll = 500 * time.Millisecond
	// newsPoll is how often a drain checks for pods that appeared while those of its
	// phase are being stopped: one of them may take all the time there is.
	newsPoll = 2 * time.Second
	// requestMargin is how long a call that requests a stop continues after this process was
	// ordered to end: as long as the runtime of a busy host takes to send the signal.
	requestMargin = time.Second
	// retryPause is how long a stop that failed waits at first.
	retryPause = 100 * time.Millisecond
)

// Options says what to drain and how long it may take.
type Options struct {
	Log    *slog.Logger
	Roster *Roster
	Phases []plan.PhaseSpec // as plan.Periods gives them
	Rules  plan.Rules

	// Granted is the init system's delay, into which the phases are fitted;
	// zero if it is not known.
	Granted time.Duration
	// Start is when the first phase begins to count: before now for a drain
	// that continues after the agent was restarted.
	Start time.Time
	// First is the services that are stopped before any pod.
	First First
	// Watch is how long a drain continues after the last stop to see whether something starts
	// containers again, which are stopped again then. Zero for a drain that others wait for.
	Watch time.Duration
	// SkipCritical skips pods from plan.CriticalPriority on.
	SkipCritical bool

	// Record is continued, in a copy. Its pods with an outcome are done; an earlier process
	// began to stop those that were started and have none. One that is
	// finished stays as it is unless something runs.
	Record *journal.Record
	// Publish is given a copy of the record at every step. It must not block: the first stop is
	// requested within milliseconds, and the record is written to disk meanwhile. If the power
	// fails in between, a container that has stopped is not started again after boot.
	Publish func(*journal.Record)
	// UnitStops is called right before a systemd unit is stopped for a container of it, with the
	// names of that unit and of those that stop with it. The stop waits for it. It may be called
	// several times at once; nil for a drain that need not know.
	UnitStops func(ctx context.Context, names []string)
	// Flush waits until what was published is on disk, or ctx ends; nil waits for nothing.
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
	pods     map[key]*pod    // all that any list or the record has shown
	entered  []*pod          // those on record, in its order
	stopping *stopping       // the services that are stopped first; nil while none are
	ordering ordering        // services that stop before containers

	observe func(from, to State) // called for each change of a container's state, if not nil: for tests
}

// progress is where Run is in the phases.
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

// Cancel ends further stops. Run waits for calls in flight, up to two seconds,
// and returns. It may be called at any time, more than once.
func (d *Drain) Cancel() { d.life.cancel() }

// Abandon is Cancel without the wait.
func (d *Drain) Abandon() {
	d.life.abandon()
	d.life.cancel()
}

// Over is closed when Run returns.
func (d *Drain) Over() <-chan struct{} { return d.life.over }

// Idle is closed when sandboxes are torn down, too, or given up.
func (d *Drain) Idle() <-chan struct{} { return d.life.idle }

// Record is how it went. It may be read after Over.
func (d *Drain) Record() *journal.Record { return d.record.Clone() }

// Deadline is when Run returns at the latest, calls that hang included: after
// the phases, what they may slip, a stop and a teardown that hang, and a list.
func (d *Drain) Deadline() time.Time { return d.schedule.deadline }

// ReportBound is what the time granted leaves for a final status.
func (d *Drain) ReportBound() time.Duration { return 2 * d.schedule.slack }

// Run drains until all pods are stopped, the phases are over, it is cancelled
// or ctx ends. The record is then complete, unless ctx ended: another
// process may continue it.
func (d *Drain) Run(ctx context.Context) {
	if t := d.record.Trigger; t != journal.TriggerManual && t != journal.TriggerManualAll {
		d.life.leaving = ctx.Done()
	}
	d.calls.begin(ctx, d.options.UnitStops)
	defer d.calls.end()
	d.publish()
	known, _ := d.options.Roster.Last()
	if d.options.First.Services != nil && len(d.record.StoppedFirst) > 0 { // by an earlier process: no runtime may answer
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
