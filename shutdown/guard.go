package shutdown

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// ErrLoginManagerGone is what keeps a guard from being armed whose login manager
// was there and is no more.
var ErrLoginManagerGone = errors.New("the login manager went away")

const (
	// why stands in the list of inhibitors beside the lock.
	why = "Stopping pods in order before the host goes down"
	// beatInterval is how often the guard shows that its loop turns.
	beatInterval = 10 * time.Second
	// recheckInterval is how often it asks whether the other owner is still there.
	recheckInterval = 30 * time.Second
	// askInterval is how often it asks, while it drains, whether the shutdown is
	// still to take place.
	askInterval = time.Second
	// verifyInterval is how often an armed guard looks whether that is still true.
	verifyInterval = 5 * time.Minute
	// LongestPause is how long the guard waits at most before it tries again to be
	// armed: as long as it is not, nothing holds a shutdown back, and a call to a
	// bus that is away costs next to nothing.
	LongestPause = 3 * time.Second
	// surveyPause is the same for the first list of pods.
	surveyPause = 30 * time.Second
	// listBound is how long a list of pods may take where nothing waits for it.
	listBound = 5 * time.Second
	// flushBound is how long the end of Run waits for the journal.
	flushBound = 2 * time.Second
)

// First is the services that are stopped before any pod, for at most FirstBound.
type First = drain.First

// FirstBound is how long these are waited for.
const FirstBound = drain.FirstBound

// Options is what a Guard needs and whom it tells. Runtime, Journal and Log are
// required.
type Options struct {
	Phases []plan.PhaseSpec // as plan.Periods returns them; none disarms
	Rules  plan.Rules

	Runtime drain.Runtime
	Journal *journal.Journal
	Log     *slog.Logger

	// Inhibitor delays the shutdown; nil where this host has none. One that is
	// a DelaySourcer or a KindTeller is asked for that, too.
	Inhibitor Inhibitor
	// First is the services that are stopped before any pod.
	First First
	// Starter starts services and units again that the journal has as stopped, if the host does
	// not go down; nil leaves them stopped.
	Starter Starter
	// Reporter tells the fleet; nil tells nobody.
	Reporter Reporter
	// Delegated tells whether another owner guards this host's shutdown, and by
	// what one sees it. It is asked whenever the lock is about to be taken. Nil
	// means that there is none.
	Delegated func(ctx context.Context) (evidence string, delegated bool)
	// Notify is told every change of state, in order, by a goroutine that may
	// take its time; nil is told nothing.
	Notify func(Change)
	// Settled is called when the story of a drain has ended because the host lives on, and
	// what it has stopped may be started again; nil is told nothing. It must not block.
	Settled func()
	// Beat is called every ten seconds by the loop that everything depends on,
	// and when arming succeeds or fails: with nil, or with what keeps the guard
	// from being armed. It must not block.
	Beat func(error)
}

// Guard holds the host's shutdown back until its pods are stopped. One
// goroutine, that of Run, owns its state; the methods are safe for concurrent
// use.
type Guard struct {
	options  Options
	log      *slog.Logger
	roster   *drain.Roster
	commands chan func()
	recheck  chan struct{} // capacity 1
	notify   *notifier

	// Run's goroutine owns what follows.
	ctx        context.Context // Run's
	lock       io.Closer       // nil if none is held
	subscribed bool
	news       int                // announcements so far: an answer from before the last one is stale
	arming     bool               // an attempt is under way
	rearm      bool               // and another one has to follow it
	stopArming context.CancelFunc // ends the latest attempt
	armed      chan attempt
	retry      *time.Timer
	retries    backoff
	trouble    error             // what keeps the guard from being armed
	episode    *episode          // nil unless Draining
	trigger    journal.Trigger   // of the latest drain, whatever its record began with
	teardowns  []<-chan struct{} // of the drains so far; each closed when its sandboxes are torn down
	person     *drain.Drain      // that a person asked for; nil if none runs
	reviving   func()            // ends the start of services that a drain has stopped; nil while none are started
	following  func()            // ends what tells how those fare; nil if nobody has been started
	drained    chan *episode
	reported   chan *episode

	mu     sync.Mutex
	status Status // guarded by mu
}

// New checks the options and returns a Guard that Run starts.
func New(options Options) (*Guard, error) {
	if options.Runtime == nil || options.Journal == nil || options.Log == nil {
		return nil, errors.New("shutdown guard: needs a runtime, a journal and a log")
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
	if options.Beat == nil {
		options.Beat = func(error) {}
	}
	g := &Guard{
		options:  options,
		log:      options.Log.With("component", "shutdown-guard"),
		roster:   &drain.Roster{Runtime: options.Runtime},
		commands: make(chan func()),
		recheck:  make(chan struct{}, 1),
		notify:   newNotifier(options.Notify),
		armed:    make(chan attempt),
		drained:  make(chan *episode),
		reported: make(chan *episode),
	}
	g.status = Status{State: Disarmed, Reason: "not started", GracePeriod: metav1.Duration{Duration: plan.Total(options.Phases)}, Last: options.Journal.Last()}
	g.status.InhibitDelayNeeded.Duration = options.needed()
	if r := options.Journal.Current(); r != nil && r.FinishedAt.IsZero() && len(options.Phases) > 0 && options.Inhibitor != nil {
		g.status.Current = r
	}
	for _, p := range options.Phases {
		if p.Priority >= plan.CriticalPriority {
			g.status.GracePeriodCriticalPods.Duration += p.Grace
		}
	}
	return g, nil
}

// Run guards the shutdown until ctx ends, and returns why it did. It never
// gives up: what fails is tried again. ctx must outlive a drain: when it ends
// during one, the calls in flight are given up, those that have just begun after
// a moment, and the journal lets the next process go on. The lock is not closed
// then, so that a copy in the service manager's keeping bridges a restart of the
// service.
func (g *Guard) Run(ctx context.Context) error {
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()
	ctx, stop := context.WithCancel(ctx) // ends all that is begun here, also where this panics
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { g.options.Journal.Run(writing) })
	wg.Go(func() { g.notify.run(writing) })
	events, lost := make(chan Event), make(chan error)
	g.ctx = ctx
	if g.episode != nil {
		<-g.episode.drain.Over() // the Run before panicked, and this one goes on from its last words
	}
	g.endRevival()
	g.subscribed, g.arming, g.rearm, g.episode, g.person = false, false, false, nil, nil
	if g.state() == Draining { // the Run before panicked; the journal knows where it stood
		g.set(Disarmed, "the shutdown guard starts anew")
	}
	g.retry = time.NewTimer(0)
	g.retry.Stop()
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	wg.Go(func() { g.survey(ctx) })
	switch {
	case len(g.options.Phases) == 0:
		g.set(Disarmed, "switched off in the configuration")
	case g.options.Inhibitor == nil:
		g.set(Disarmed, "this host has no login manager that could delay a shutdown")
	default:
		g.set(Disarmed, "looking for the login manager")
		wg.Go(func() { g.watch(ctx, events, lost) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-beat.C:
			g.options.Beat(g.trouble)
		case e := <-events:
			g.on(e)
		case err := <-lost:
			g.subscribed = false
			g.lose(fmt.Errorf("watch the login manager: %w", err))
		case <-g.retry.C:
			if g.subscribed {
				g.arm()
			}
		case a := <-g.armed:
			g.onAttempt(a)
		case e := <-g.drained:
			g.onDrained(e)
		case e := <-g.reported:
			g.release(e)
		case command := <-g.commands:
			command()
		case <-g.recheck:
			if g.state() == Armed {
				g.arm()
			}
		}
	}
	g.retry.Stop()
	if e := g.episode; e != nil {
		<-e.drain.Over() // its last words belong in the journal
		e.answer(outcome{record: *e.drain.Record(), err: context.Cause(ctx)})
	} else if g.state() != Released {
		g.options.Journal.Unmark()
	}
	flush, cancel := context.WithTimeout(writing, flushBound)
	defer cancel()
	g.options.Journal.Flush(flush)
	stopWriting()
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(flushBound): // the disk hangs, or whoever is notified does
	}
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
		drain.Sleep(ctx, pauses.next(LongestPause))
	}
}

// survey lists the pods once, so that a runtime that hangs later is no reason
// to know none. Observe keeps that up to date.
func (g *Guard) survey(ctx context.Context) {
	var pauses backoff
	for ctx.Err() == nil {
		if _, ok := g.roster.Last(); ok {
			return
		}
		list, cancel := context.WithTimeout(ctx, listBound)
		pods, err := g.roster.List(list)
		cancel()
		if err == nil {
			g.mark(pods)
			return
		}
		drain.Sleep(ctx, pauses.next(surveyPause))
	}
}

// Observe tells the guard which pods there are, all of them, whenever somebody
// has listed them. It starts from there should a runtime hang in the hour of
// need, and it is what the next boot learns if the power is cut.
func (g *Guard) Observe(pods []runtime.Pod) {
	g.roster.Set(pods)
	g.mark(pods)
}

// mark writes down which pods run, for the next boot.
func (g *Guard) mark(pods []runtime.Pod) {
	g.mu.Lock()
	state := g.status.State
	g.mu.Unlock()
	if state == Draining || state == Released || state == Delegated {
		return
	}
	refs := []journal.Ref{}
	for _, p := range pods {
		if plan.Runs(p) {
			ref := journal.Ref{Runtime: p.Runtime, ID: p.ID, Namespace: p.Namespace, Name: p.Name}
			if p.UID != p.ID {
				ref.UID = p.UID
			}
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b journal.Ref) int {
		return cmp.Or(cmp.Compare(a.Runtime, b.Runtime), cmp.Compare(a.ID, b.ID))
	})
	g.options.Journal.Mark(refs)
}

// Change tells the guard that pods came or went, of which Observe is to tell soon. A shutdown
// that is announced before it does asks for them once more.
func (g *Guard) Change() { g.roster.Change() }

// Recheck has an armed guard ask again whether another owner guards the
// shutdown: nobody announces one that takes its lock later. It returns at once.
func (g *Guard) Recheck() {
	select {
	case g.recheck <- struct{}{}:
	default: // asked for already
	}
}

// Status is the guard as it stands.
func (g *Guard) Status() Status {
	g.mu.Lock()
	status := g.status
	g.mu.Unlock()
	// A journal that could not be read at first may tell by now.
	story := g.options.Journal.Story()
	status.Last, status.CalledOff, status.Restarts = story.Last, story.CalledOff, story.Restarts
	return status
}

// Plan is what a shutdown would do now. It asks the runtimes and the init
// system; where a runtime does not answer, the plan shows what is known of it
// and the error says so.
func (g *Guard) Plan(ctx context.Context) (plan.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, listBound)
	defer cancel()
	pods, err := g.roster.List(ctx)
	granted := g.Status().InhibitDelayMax.Duration
	if g.options.Inhibitor != nil {
		if now, err := g.options.Inhibitor.MaxDelay(ctx); err == nil {
			granted = now
		}
	}
	if err != nil {
		err = fmt.Errorf("plan the shutdown: %w", err)
	}
	p := plan.New(g.options.Phases, pods, g.options.Rules, g.options.First.Left(granted))
	p.Granted.Duration = granted
	return p, err
}

func (g *Guard) state() State { return g.Status().State }

// set enters a state, or renews the reason for being in it.
func (g *Guard) set(to State, reason string) {
	g.mu.Lock()
	from := g.status.State
	g.status.State, g.status.Reason, g.status.Trouble = to, reason, g.trouble
	if to != Draining {
		g.status.Deadline = time.Time{}
	}
	if to == Armed || to == Disarmed && from != Disarmed { // whatever it was is over
		g.status.Current = nil
	}
	if to == Disarmed || to == Delegated {
		g.status.InhibitDelayShortage = ""
	}
	g.status.Last = g.options.Journal.Last()
	status := g.status
	g.mu.Unlock()
	if from != to {
		g.log.Info("shutdown guard", "state", to.String(), "was", from.String(), "reason", reason)
		g.notify.put(Change{From: from, To: to, Trigger: g.trigger, Status: status})
	}
}

// publish makes a drain's progress known.
func (g *Guard) publish(r *journal.Record) {
	g.options.Journal.Put(r)
	g.setCurrent(r)
}

// setCurrent has the status tell of r, which is not changed from here on.
func (g *Guard) setCurrent(r *journal.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status.Current = r
}
