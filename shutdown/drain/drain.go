// Package drain stops the pods of a host, phase by phase, and writes down how
// each fared. It is what a shutdown guard runs while it holds the lock, and what
// a person's drain is.
//
// It owns the calls to the runtimes and how long each may take. It knows no
// login manager and refuses to decide whether to drain.
package drain

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
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
	// cancelWait is how long calls in flight are waited for after a
	// cancellation, before they are given up; they are, killRoom before any of
	// them kills: what was cancelled costs no container its life.
	cancelWait = 2 * time.Second
	killRoom   = 500 * time.Millisecond
	// resumePoll is how often a drain that goes on after a restart of the agent
	// looks whether containers have ended that were asked to before.
	resumePoll = 500 * time.Millisecond
	// newsPoll is how often a drain looks for pods that came while those of its
	// phase are being stopped: one of them may take all the time there is.
	newsPoll = 2 * time.Second
	// askRoom is how long a call that asks a container to end outlives the order that this
	// process ends: what it takes a busy host's runtime to pass the signal on.
	askRoom = time.Second
	// retryPause is how long a stop that failed waits at first.
	retryPause = 100 * time.Millisecond
)

// result is what the goroutines of one pod report to the drain.
type result struct {
	phase int // in which it was begun
	pod   key
	ends  []containerEnd // of the containers that were to be stopped
	torn  *teardown      // only this: what became of the sandbox
	asked string         // only this: the stop of a container that has waited for others is requested
	at    time.Time      // when

	service *serviceEnd // of no pod, but of a service that is stopped first
}

// containerEnd is how the stop of one container ended.
type containerEnd struct {
	id     string
	killed bool  // its grace period ran out
	err    error // it may still run
}

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
	// that goes on after the agent was restarted.
	Start time.Time
	// First is the services that are stopped before any pod.
	First First
	// SpareCritical leaves pods from plan.CriticalPriority on alone.
	SpareCritical bool

	// Record is continued, in a copy. Its pods with an outcome are done; those that were
	// started and have none were asked to end by an earlier process. One that is
	// finished stays as it is unless something runs.
	Record *journal.Record
	// Publish is given a copy of the record at every step. It must not block.
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
	phases   []plan.PhaseSpec   // fitted
	short    *journal.Shortened // nil where they need not be
	lead     time.Duration      // what services that are stopped first may take before the phases count
	slack    time.Duration      // by how much a call may overrun its phase
	deadline time.Time

	cancel, abandon func()
	leaving         <-chan struct{} // closed: another process goes on; set by Run, nil if none ever does
	cancelled       chan struct{}   // closed: no further stops
	abandoned       chan struct{}   // closed: nor any wait for those in flight
	last            chan struct{}   // closed when the last phase is over
	over            chan struct{}   // closed when Run returns
	idle            chan struct{}   // closed when the last call has ended
	calls           sync.WaitGroup

	// Run's goroutine owns what follows.
	results chan result
	lists   chan listing
	polling bool // a list is under way
	phase   int  // that runs
	begun   int  // calls of stopPod in all, and last resorts
	overran bool // a phase ended with calls under way
	inPhase int  // those that it began and that are under way
	calm    bool // there are none, or the phase is over
	settled bool // the latest list was made with nothing running, and shows nothing new
	current []runtime.Pod
	fresh   bool                      // current is what every runtime answered
	silent  func(runtime string) bool // who did not; nil before the first list
	heard   bool                      // they did, once or more
	blind   error                     // why no list was ever complete

	record  *journal.Record // without its pods
	pods    map[key]*pod    // all that any list or the record has shown
	entered []*pod          // those on record, in its order
	queue   []*pod          // whose sandboxes wait for their turn

	stopping *stopping // the services that are stopped first; nil while none are

	observe func(from, to State) // is told how states of containers change, if not nil: for tests
}

// New prepares a drain.
func New(options Options) *Drain {
	reserve := plan.Margin
	if options.Granted > 0 {
		reserve = plan.Reserve(options.First.Left(options.Granted))
	}
	d := &Drain{
		options: options, log: options.Log, phases: plan.Fit(options.Phases, options.First.Left(options.Granted)), lead: options.First.Lead(options.Granted), slack: reserve / 6,
		cancelled: make(chan struct{}), abandoned: make(chan struct{}), last: make(chan struct{}), over: make(chan struct{}), idle: make(chan struct{}),
		results: make(chan result), lists: make(chan listing),
		record: options.Record.Clone(), pods: map[key]*pod{},
	}
	d.short = shortened(options, d.phases)
	d.deadline = options.Start.Add(plan.Total(d.phases) + d.slack)
	if soon := time.Now().Add(time.Duration(len(d.phases)) * d.settle()); soon.After(d.deadline) {
		d.deadline = soon
	}
	d.deadline = d.deadline.Add(d.lead + 3*d.slack)
	d.cancel = sync.OnceFunc(func() { close(d.cancelled) })
	d.abandon = sync.OnceFunc(func() { close(d.abandoned) })
	for _, record := range d.record.Pods {
		p := d.enter(record)
		switch {
		case record.Outcome == "":
			p.resumed = record.StartedAt
		case record.Outcome == journal.Left && !d.record.FinishedAt.IsZero():
			p.spent = record.StartedAt
		}
	}
	return d
}

// Cancel ends further stops. Run waits for calls in flight, up to two seconds,
// and returns. It may be called at any time, more than once.
func (d *Drain) Cancel() { d.cancel() }

// Abandon is Cancel without the wait.
func (d *Drain) Abandon() {
	d.abandon()
	d.cancel()
}

// Over is closed when Run returns.
func (d *Drain) Over() <-chan struct{} { return d.over }

// Idle is closed when sandboxes are torn down, too, or given up.
func (d *Drain) Idle() <-chan struct{} { return d.idle }

// Record is how it went. It may be read after Over.
func (d *Drain) Record() *journal.Record { return d.record.Clone() }

// Deadline is when Run returns at the latest, calls that hang included: after
// the phases, what they may slip, a stop and a teardown that hang, and a list.
func (d *Drain) Deadline() time.Time { return d.deadline }

// ReportBound is what the time granted leaves for a final status.
func (d *Drain) ReportBound() time.Duration { return 2 * d.slack }

// settle is how long a phase whose time is up waits for its kills.
func (d *Drain) settle() time.Duration { return d.slack / 4 }

// due is when phase i ends as it was planned.
func (d *Drain) due(i int) time.Time { return d.options.Start.Add(plan.Total(d.phases[:i+1])) }

// end is when phase i's graces end if it begins now: what earlier phases left
// over is its own; what one overran is not taken from it beyond the slack. A
// phase whose time was over before it began kills who was asked to end before, and
// hands the others on.
func (d *Drain) end(i int) time.Time {
	now := time.Now()
	end := d.due(i)
	if d.overran {
		late, latest := now.Add(d.phases[i].Grace), end.Add(d.slack)
		if late.After(latest) {
			late = latest
		}
		if late.After(end) {
			end = late
		}
	}
	if end.Before(now) {
		end = now
	}
	return end
}

// Run drains until all pods are stopped, the phases are over, it is cancelled
// or ctx ends. The record is then complete, unless ctx ended: another
// process may go on with it.
func (d *Drain) Run(ctx context.Context) {
	calls, giveUp := context.WithCancel(ctx)
	if d.options.UnitStops != nil {
		calls = runtime.WithUnitStops(calls, d.options.UnitStops)
	}
	if t := d.record.Trigger; t != journal.TriggerPerson && t != journal.TriggerPersonAll {
		d.leaving = ctx.Done()
	}
	defer func() {
		close(d.over)
		go func() {
			d.calls.Wait()
			giveUp()
			close(d.idle)
		}()
	}()
	d.publish()
	if d.options.First.Services != nil && len(d.record.StoppedFirst) > 0 { // by an earlier process: nobody else may answer
		known, _ := d.options.Roster.Last()
		d.adopt(ctx, known)
	}
	d.firstList(ctx, calls)
	d.stopFirst(ctx, calls)
	for i := range d.phases {
		d.runPhase(ctx, calls, i)
		if d.ended(ctx) {
			break
		}
	}
	close(d.last)
	d.awaitStuck(ctx, calls)
	if d.ended(ctx) {
		d.windDown(ctx, calls, giveUp)
	}
	if ctx.Err() == nil {
		d.conclude()
	} else { // another process goes on
		d.handOver(calls)
	}
	d.record = d.snapshot() // nobody changes it from here on
	d.options.Publish(d.record.Clone())
}

// ended tells whether no further stop may begin.
func (d *Drain) ended(ctx context.Context) bool {
	select {
	case <-d.cancelled:
		return true
	case <-ctx.Done():
		return true
	default:
		return false
	}
}
