package shutdown

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// ErrStarting is why a guard is not armed before logind has answered for the first time.
var ErrStarting = errors.New("the shutdown guard has just started")

// ErrLoginManagerGone is why a guard is not armed after logind has stopped.
var ErrLoginManagerGone = errors.New("logind stopped")

const (
	// why is the text in the list of inhibitor locks.
	why = "Stopping pods in order before the host shuts down"
	// heartbeatInterval is how often the guard reports that its loop makes progress.
	heartbeatInterval = 10 * time.Second
	// recheckInterval is how often a delegated guard checks whether the other owner still exists.
	recheckInterval = 30 * time.Second
	// askInterval is how often the guard checks during a drain whether the shutdown was cancelled.
	askInterval = time.Second
	// verifyInterval is how often an armed guard checks that it is still armed.
	verifyInterval = 5 * time.Minute
	// LongestPause is the longest pause between attempts to arm. It is short because nothing delays
	// a shutdown without a lock, and an attempt without a bus is cheap.
	LongestPause = 3 * time.Second
	// surveyPause is the longest pause between attempts to list the pods for the first time.
	surveyPause = 30 * time.Second
	// listBound bounds a list of pods that nothing waits for.
	listBound = 5 * time.Second
	// flushBound is how long Run waits for the journal before it returns.
	flushBound = 2 * time.Second
)

// First is the services that are stopped before any pod, within FirstBound.
type First = drain.First

// FirstBound is how long the drain waits for these services.
const FirstBound = drain.FirstBound

// Options configures a Guard. Runtime, Journal and Log are required.
type Options struct {
	Phases []plan.PhaseSpec // as plan.Periods returns them; without phases the guard stays disarmed
	Rules  plan.Rules

	Runtime drain.Runtime
	Journal *journal.Journal
	Log     *slog.Logger

	// Living returns the IDs of containers that have a process. It is used if a runtime has
	// stopped. Nil if unknown.
	Living func() (map[string]bool, error)
	// Inhibitor delays the shutdown; nil if this host has none. If it is also a DelaySourcer or
	// KindSource, that is used.
	Inhibitor Inhibitor
	// First is the services that are stopped before any pod.
	First First
	// Starter starts the services and units again that the drain stopped, if the host does not shut
	// down. If it is nil, they stay stopped.
	Starter Starter
	// Reporter, if not nil, reports to the control plane.
	Reporter Reporter
	// Delegated reports whether another owner handles this host's shutdown, and the evidence. It is
	// called before each attempt to take the lock. Nil means that there is no other owner.
	Delegated func(ctx context.Context) (evidence string, delegated bool)
	// Notify, if not nil, receives every change of state in order, in its own goroutine. It may
	// block.
	Notify func(Change)
	// Board receives the guard's status. Readers may have it before the guard exists. Nil creates a
	// new one.
	Board *Board
	// Settled, if not nil, is called when a drain has ended and the host does not shut down, so
	// that its containers can be started again. It must not block.
	Settled func()
	// Heartbeat is called by Run's loop every ten seconds, and when arming succeeds or fails. err
	// is why the guard is not armed, or nil. It must not block.
	Heartbeat func(error)
}

// Guard delays the host's shutdown until its pods are stopped. Run's goroutine owns its state.
// Other goroutines send commands to it. The methods are safe for concurrent use.
type Guard struct {
	options  Options
	log      *slog.Logger
	roster   *drain.Roster
	notify   *notifier
	commands chan func()   // for Run's goroutine
	recheck  chan struct{} // capacity 1

	// Run's goroutine owns the fields below.
	ctx       context.Context // Run's
	status    Status          // see change
	lock      io.Closer       // nil if none is held
	arming    arming
	episode   *episode          // nil unless Draining
	trigger   journal.Trigger   // trigger of the latest drain, which may differ from its record's
	teardowns []<-chan struct{} // for each drain: closed when its sandboxes are torn down
	manual    *drain.Drain      // running manual drain; nil if there is none
	reviver   *reviver
}

// New validates the options and returns a Guard. Call Run to start it.
func New(options Options) (*Guard, error) {
	if options.Runtime == nil || options.Journal == nil || options.Log == nil {
		return nil, errors.New("shutdown guard: runtime, journal and log are required")
	}
	if err := plan.Check(options.Phases); err != nil {
		return nil, fmt.Errorf("shutdown guard: %w", err)
	}
	if options.Delegated == nil {
		options.Delegated = func(context.Context) (string, bool) { return "", false }
	}
	if options.Notify == nil {
		options.Notify = func(Change) {}
	}
	if options.Settled == nil {
		options.Settled = func() {}
	}
	if options.Heartbeat == nil {
		options.Heartbeat = func(error) {}
	}
	options.Board = cmp.Or(options.Board, &Board{})
	g := &Guard{
		options:  options,
		log:      options.Log.With("component", "shutdown-guard"),
		roster:   &drain.Roster{Runtime: options.Runtime, Living: options.Living},
		notify:   newNotifier(options.Notify),
		commands: make(chan func()),
		recheck:  make(chan struct{}, 1),
	}
	g.reviver = &reviver{starter: options.Starter, journal: options.Journal, log: g.log, change: g.change, send: g.send}
	status := Status{State: Disarmed, Reason: "not started", GracePeriod: metav1.Duration{Duration: plan.Total(options.Phases)}, Last: options.Journal.Last()}
	status.InhibitDelayNeeded.Duration, status.Untimed = options.needed(), plan.Untimed(options.Phases)
	if r := options.Journal.Current(); r != nil && r.FinishedAt.IsZero() && len(options.Phases) > 0 && options.Inhibitor != nil {
		status.Current = r
	}
	for _, p := range options.Phases {
		if p.Priority >= plan.CriticalPriority {
			status.GracePeriodCriticalPods.Duration += p.Grace
		}
	}
	status.Trouble = g.trouble()
	g.change(func(s *Status) { *s = status })
	return g, nil
}

// Run guards the shutdown until ctx ends, and returns why. It retries everything that fails. ctx
// must outlive a drain. If ctx ends first, calls in progress are abandoned; a call that has just
// started gets a moment. The next process then continues from the journal. Run does not close the
// lock, so that the copy in systemd's descriptor store survives a restart of the service.
func (g *Guard) Run(ctx context.Context) error {
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	ctx, stop := context.WithCancel(ctx) // ends everything started here, even after a panic
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { g.options.Journal.Run(writing) })
	wg.Go(func() { g.notify.run(writing) })
	events, lost := make(chan Event), make(chan error)
	g.ctx = ctx
	if g.episode != nil {
		<-g.episode.drain.Over() // the previous Run panicked; this one continues from its last record
	}
	g.reviver.end()
	g.episode, g.manual, g.status.ManualDrain = nil, nil, nil
	g.arming.subscribed, g.arming.running, g.arming.again = false, false, false
	if g.status.State == Draining { // the previous Run panicked; the journal has its state
		g.set(Disarmed, "shutdown guard restarted")
	}
	g.arming.final = g.arming.final && g.status.State == Released
	g.arming.retry = time.NewTimer(0)
	g.arming.retry.Stop()
	heartbeat := time.NewTicker(heartbeatInterval)
	defer heartbeat.Stop()
	wg.Go(func() { g.survey(ctx) })
	switch {
	case g.arming.final:
	case len(g.options.Phases) == 0:
		g.drop()
		g.set(Disarmed, "switched off in the configuration")
	case g.options.Inhibitor == nil:
		g.set(Disarmed, "this host has no logind to delay a shutdown")
	default:
		g.set(Disarmed, "connecting to logind")
		wg.Go(func() { g.watch(ctx, events, lost) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-heartbeat.C:
			g.options.Heartbeat(g.arming.trouble)
		case e := <-events:
			g.on(e)
		case err := <-lost:
			g.arming.subscribed = false
			g.setTrouble(fmt.Errorf("watch logind: %w", err))
		case <-g.arming.retry.C:
			if g.arming.subscribed {
				g.arm()
			}
		case command := <-g.commands:
			command()
		case <-g.recheck:
			if g.status.State == Armed {
				g.arm()
			}
		}
	}
	g.arming.retry.Stop()
	if e := g.episode; e != nil {
		<-e.drain.Over() // the journal gets its last record
		e.answer(outcome{record: *e.drain.Record(), err: context.Cause(ctx)})
	} else if g.status.State != Released {
		g.options.Journal.Unmark()
	}
	flush, cancel := context.WithTimeout(writing, flushBound)
	defer cancel()
	g.options.Journal.Flush(flush)
	stopWriting()
	end, ended := context.WithTimeout(context.WithoutCancel(ctx), flushBound)
	defer ended()
	_ = bounded.Call(end, func() error { wg.Wait(); return nil }) // the disk or the observer may hang
	return context.Cause(ctx)
}

// watch keeps a subscription alive. It ends with ctx.
func (g *Guard) watch(ctx context.Context, events chan<- Event, lost chan<- error) {
	var pauses backoff
	for {
		began := time.Now()
		err := g.options.Inhibitor.Watch(ctx, events)
		select {
		case lost <- err:
		case <-ctx.Done():
			return
		}
		if time.Since(began) > time.Minute {
			pauses.reset()
		}
		_ = bounded.Sleep(ctx, pauses.next(LongestPause))
	}
}

// Recheck makes an armed guard check again whether another owner handles the shutdown, because no
// signal reports a later lock. It does not block.
func (g *Guard) Recheck() {
	select {
	case g.recheck <- struct{}{}:
	default: // already requested
	}
}

// Status returns the current status.
func (g *Guard) Status() Status {
	status := g.options.Board.Status()
	// The journal may be readable now, even if it was not at first.
	history := g.options.Journal.History()
	status.Last, status.Cancelled, status.Drained, status.Restarts = history.Last, history.Cancelled, history.Drained, history.Restarts
	return status
}

// Plan returns what a shutdown would do now. It queries the runtimes and the init system. If a
// runtime does not answer, the plan has its last known pods, and the error names the runtime.
func (g *Guard) Plan(ctx context.Context) (plan.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, listBound)
	defer cancel()
	pods, err := g.roster.List(ctx)
	if err != nil {
		err = fmt.Errorf("plan the shutdown: %w", err)
	}
	p, incomplete := g.PlanOf(ctx, pods)
	return p, errors.Join(err, incomplete)
}

// PlanOf is Plan for the given pods.
func (g *Guard) PlanOf(ctx context.Context, pods []runtime.Pod) (plan.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, listBound)
	defer cancel()
	granted := g.Status().InhibitDelayMax.Duration
	if g.options.Inhibitor != nil {
		if now, err := g.options.Inhibitor.MaxDelay(ctx); err == nil {
			granted = now
		}
	}
	var err error
	var order plan.Order
	if services := g.options.First.Services; services != nil {
		known, unknown := services.OrderedAfter(ctx, plan.Holders(pods)...)
		if order = known; unknown != nil {
			err = fmt.Errorf("list services that stop before containers: %w; they are missing from the plan", unknown)
		}
	}
	p := plan.New(g.options.Phases, order.Apply(pods), g.options.Rules, g.options.First.Left(granted))
	p.Granted.Duration, p.Notes = granted, append(p.Notes, plan.UnknownLabels(pods)...)
	return p, err
}

// send runs command in Run's goroutine. It returns false if ctx ended first. It does not block for
// long, because Run never does. Run's goroutine itself must not call it.
func (g *Guard) send(ctx context.Context, command func()) (called bool) {
	done := make(chan struct{})
	select {
	case g.commands <- func() {
		defer close(done)
		if called = ctx.Err() == nil; called {
			command()
		}
	}:
		<-done
	case <-ctx.Done():
	}
	return called
}

// change modifies the status, and publishes it. Only New and Run's goroutine may call it.
func (g *Guard) change(change func(*Status)) {
	change(&g.status)
	g.options.Board.publish(g.status)
}

// trouble returns why the guard is not armed. Before logind's first answer, it is ErrStarting.
func (g *Guard) trouble() error {
	if g.arming.trouble == nil && !g.arming.subscribed && !g.arming.final && g.options.Inhibitor != nil && len(g.options.Phases) > 0 {
		return ErrStarting
	}
	return g.arming.trouble
}

// set enters a state, or updates its reason.
func (g *Guard) set(to State, reason string) {
	from, last := g.status.State, g.options.Journal.Last()
	g.change(func(s *Status) {
		s.State, s.Reason, s.Trouble, s.Last = to, reason, g.trouble(), last
		if to != Draining {
			s.Deadline = time.Time{}
		}
		if to == Armed || to == Disarmed && from != Disarmed { // the trouble has ended
			s.Current = nil
		}
		if to == Disarmed || to == Delegated {
			s.InhibitDelayShortage = ""
		}
	})
	if from != to {
		g.log.Info("shutdown guard", "state", to.String(), "was", from.String(), "reason", reason)
		g.notify.put(Change{From: from, To: to, Trigger: g.trigger, Status: g.status})
	}
}

// setCurrent publishes r. r must not be modified afterwards.
func (g *Guard) setCurrent(r *journal.Record) {
	g.change(func(s *Status) { s.Current = r })
}
