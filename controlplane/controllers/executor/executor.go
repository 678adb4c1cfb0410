// Package executor executes the decisions of a controller. It writes what is due, several objects
// at a time but one write to each object, and retries after an error. It writes only while the
// controller leads.
//
// A controller decides from a cache and provides a Job. It makes the same decision again until the
// cache shows that the action was executed or is no longer wanted. So no action is lost.
package executor

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// LabelObject is the label of a goroutine that writes an object, and of its context, for package
// runtime/pprof.
const LabelObject = "object"

const (
	calls       = 16               // concurrent writes
	callTimeout = 10 * time.Second // of one write
	// spacing is the shortest time between decisions: one about 10,000 Nodes takes a few milliseconds.
	spacing = 100 * time.Millisecond
	// settle is how long the cache may take to show a write.
	settle = 10 * time.Second
	// lagKept is how long Report keeps the lag of a write that the cache shows. After that it says
	// nothing about the present lag.
	lagKept = 4 * time.Minute
	// pausedRetry is the wait of a controller that cannot decide.
	pausedRetry = time.Second
)

// Action is one write to one object.
type Action interface {
	// Object is KIND/NAME. There is at most one write to an object at a time.
	Object() string
	// Version is the resourceVersion that the decision is based on. After a write, an action on the
	// same version is not written again for a while.
	Version() string
}

// Job is the controller's part. The goroutine of Run calls all functions except Facts and Write.
type Job[A Action] struct {
	// Facts returns why the facts of a decision are not complete or not recent; nil if they are. It is called
	// concurrently.
	Facts func(now time.Time) error
	// Decide returns the actions that are due, and the latest time for the next decision. The error
	// says why there is no decision.
	Decide func(now time.Time) (due []A, next time.Time, err error)
	// Write executes an action in a term. It is called concurrently.
	Write func(ctx context.Context, term store.Term, action A) error
	// Begin is called before each write. The write may be stored even if its answer is lost. Begin may
	// be nil.
	Begin func(action A)
	// Done is called after a write that was stored. log leaves out lines about objects that one host writes too often.
	Done func(action A, log *slog.Logger)
}

// Executor executes the actions of one controller.
type Executor[A Action] struct {
	job     Job[A]
	apart   time.Duration // from a change to the decision about it, see apart
	changed loop.Signal
	log     *slog.Logger
	leads   chan *leadership

	mu     sync.Mutex // guards report
	report Report
}

// Report is the state of the execution. It is immutable.
type Report struct {
	At        time.Time        // of the last decision; zero before the first
	Paused    string           // why there is no decision; empty if there is one
	Waits     string           // why more may be due: the decision lacks facts; empty if it has all
	OldestDue time.Time        // since when the oldest action that is not stored yet is due; zero if there is none
	Failing   map[string]error // why objects cannot be written, by KIND/NAME
	Writes    Writes
	// WatchLag is how long the cache took to show the last write of the last few minutes. If the cache
	// does not show a write yet, its age counts if it is longer. Zero without such a write.
	WatchLag time.Duration
}

// Writes counts writes by their result since the start.
type Writes struct{ Stored, Conflict, Failed uint64 }

// Add returns the sum of both.
func (w Writes) Add(other Writes) Writes {
	return Writes{w.Stored + other.Stored, w.Conflict + other.Conflict, w.Failed + other.Failed}
}

// New returns an executor that decides again after each signal on changed.
func New[A Action](job Job[A], changed loop.Signal, log *slog.Logger) *Executor[A] {
	return &Executor[A]{job: job, apart: apart(job), changed: changed, log: log, leads: make(chan *leadership)}
}

// apart returns a time below a millisecond that is another one for each type of job, so that controllers that follow the
// same objects do not decide at once, but always in the same order.
func apart(job any) time.Duration {
	h := fnv.New32a()
	fmt.Fprintf(h, "%T", job)
	return time.Duration(h.Sum32()%1000+1) * time.Microsecond
}

// Report returns the state of the execution. A replica that does not lead decides as well, but
// writes nothing.
func (e *Executor[A]) Report() Report {
	e.mu.Lock()
	r := e.report
	e.mu.Unlock()
	switch err := e.job.Facts(time.Now()); {
	case err != nil:
		r.Waits = err.Error()
	case r.At.IsZero():
		r.Waits = "no decision yet"
	default:
		r.Waits = r.Paused
	}
	return r
}

// leadership is a term. It lasts until ctx ends.
type leadership struct {
	ctx   context.Context
	term  store.Term
	ended chan struct{} // closed when the last write has returned
}

// Lead writes in a term until ctx ends. No write is in flight when it returns. Run must be running.
func (e *Executor[A]) Lead(ctx context.Context, term store.Term) error {
	lead := &leadership{ctx: ctx, term: term, ended: make(chan struct{})}
	select {
	case e.leads <- lead:
		<-lead.ended
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("the controller has stopped")
}

// Run decides until ctx ends, and writes while Lead lasts. heartbeat receives the result of each
// decision.
func (e *Executor[A]) Run(ctx context.Context, heartbeat func(error)) error {
	r := run[A]{
		Executor: e, heartbeat: heartbeat, due: map[string]time.Time{}, done: make(chan result[A], calls),
		inFlight: map[string]bool{}, held: map[string]hold{}, unseen: map[string]stored{}, lines: lines{log: e.log},
	}
	defer r.end()
	return r.run(ctx)
}

// run is the state of Run, whose goroutine owns all fields.
type run[A Action] struct {
	*Executor[A]
	heartbeat func(error)
	lead      *leadership // nil while another replica leads
	waiting   []A
	inFlight  map[string]bool
	done      chan result[A]
	held      map[string]hold
	due       map[string]time.Time // since when actions are due
	unseen    map[string]stored    // writes that the cache does not show yet
	lag       time.Duration        // of the last write that the cache showed
	lagAt     time.Time            // when the cache showed that write
	writes    Writes
	lines     lines
}

// stored is a stored write: the version it replaced, and its time.
type stored struct {
	version string
	at      time.Time
}

// result is the result of a write.
type result[A Action] struct {
	action A
	err    error
}

// hold prevents writes to an object for a while, as long as it has that version.
type hold struct {
	version string
	until   time.Time
	retry   Backoff // after a failed write
	err     error
}

func (r *run[A]) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last, first time.Time // the last decision, and the first change since then
	for {
		r.start()
		select {
		case lead := <-r.leads:
			r.end() // of an earlier term, if there is one
			r.lead = lead
			timer.Reset(0)
		case <-r.leadEnds():
			r.end()
		case done := <-r.done:
			r.finish(done, time.Now())
		case <-r.changed:
			if first.IsZero() {
				first = time.Now()
			}
			timer.Reset(max(time.Until(last.Add(spacing)), time.Until(first.Add(r.apart))))
		case <-timer.C:
			last, first = time.Now(), time.Time{}
			timer.Reset(r.decide(last))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leadEnds returns a channel that is closed when the term ends; nil, which blocks for ever, without
// a term.
func (r *run[A]) leadEnds() <-chan struct{} {
	if r.lead == nil {
		return nil
	}
	return r.lead.ctx.Done()
}

// end waits for the writes of a term, which its context ends, and lets Lead return.
func (r *run[A]) end() {
	r.waiting = nil
	for len(r.inFlight) > 0 {
		r.finish(<-r.done, time.Now())
	}
	if r.lead != nil {
		close(r.lead.ended)
		r.lead = nil
	}
}

// decide queues the writes that are due now, and returns how long to wait for the next decision.
func (r *run[A]) decide(now time.Time) time.Duration {
	due, next, err := r.job.Decide(now)
	r.lines.expire(now)
	r.waiting = nil // the new decision has everything that is still due
	r.heartbeat(err)
	if err != nil {
		r.publish(Report{At: now, Paused: err.Error()})
		return pausedRetry
	}
	r.measureLag(due, now)
	maps.DeleteFunc(r.held, func(_ string, h hold) bool { return now.Sub(h.until) > lastRetry })
	for _, action := range due {
		switch h := r.held[action.Object()]; {
		case r.inFlight[action.Object()]:
		case h.version == action.Version() && now.Before(h.until):
			if h.until.Before(next) {
				next = h.until
			}
		default:
			r.waiting = append(r.waiting, action)
		}
	}
	r.waiting = InTurn(r.waiting, func(action A) string { return writerOf(action.Object()) })
	r.publish(Report{At: now, OldestDue: r.oldestDue(due, now)})
	return max(next.Sub(now), spacing)
}

// writerOf returns who writes an object, as the first two parts of its name show: nodes/n, events/n/e, pods/n/shop/web,
// tickets/t.
func writerOf(object string) string {
	kind, rest, _ := strings.Cut(object, "/")
	name, _, _ := strings.Cut(rest, "/")
	return kind + "/" + name
}

// InTurn orders a list so that those who write the objects take turns: a host that stores objects again and again
// delays and hides no other.
func InTurn[E any](list []E, writer func(E) string) []E {
	var turns [][]E
	taken := map[string]int{}
	for _, e := range list {
		by := writer(e)
		turn := taken[by]
		taken[by]++
		if turn == len(turns) {
			turns = append(turns, nil)
		}
		turns[turn] = append(turns[turn], e)
	}
	return slices.Concat(turns...)
}

// start starts waiting writes, up to the limit of concurrent ones.
func (r *run[A]) start() {
	for r.lead != nil && r.lead.ctx.Err() == nil && len(r.waiting) > 0 && len(r.inFlight) < calls {
		action, lead := r.waiting[0], r.lead
		r.waiting = r.waiting[1:]
		r.inFlight[action.Object()] = true
		if r.job.Begin != nil {
			r.job.Begin(action)
		}
		go func() {
			ctx, cancel := context.WithTimeoutCause(lead.ctx, callTimeout, controlplane.ErrNoAnswer)
			defer cancel()
			// A profile of the goroutines shows which object each of them writes.
			ctx = pprof.WithLabels(ctx, pprof.Labels(LabelObject, action.Object()))
			pprof.SetGoroutineLabels(ctx)
			r.done <- result[A]{action, r.job.Write(ctx, lead.term, action)}
		}()
	}
}

// finish records the result of a write.
func (r *run[A]) finish(done result[A], now time.Time) {
	object := done.action.Object()
	delete(r.inFlight, object)
	before := r.held[object]
	h := hold{version: done.action.Version(), until: now.Add(settle)}
	switch {
	case done.err == nil:
		r.writes.Stored++
		r.unseen[object] = stored{done.action.Version(), now}
		r.job.Done(done.action, r.lines.to(object, now))
	case errors.Is(done.err, controlplane.ErrConflict), errors.Is(done.err, controlplane.ErrNotFound):
		r.writes.Conflict++ // the cache will soon show why
		h.until = now.Add(firstRetry)
	case r.lead != nil && r.lead.ctx.Err() != nil, errors.Is(done.err, store.ErrDeposed):
		h.until = now
	default:
		r.writes.Failed++
		h.err, h.retry = done.err, before.retry.Next()
		h.until = now.Add(h.retry.Pause())
	}
	switch {
	case before.err == nil && h.err != nil:
		r.lines.to(object, now).Warn("cannot change object, retrying", "object", object, "error", h.err)
	case before.err != nil && h.err == nil:
		r.lines.to(object, now).Info("object can be changed again", "object", object)
	}
	r.held[object] = h
	r.changed.Send()
}

// measureLag finds the writes that the cache shows: no action is due any more on the version they
// replaced.
func (r *run[A]) measureLag(due []A, now time.Time) {
	same := map[string]bool{}
	for _, action := range due {
		w, written := r.unseen[action.Object()]
		same[action.Object()] = written && w.version == action.Version()
	}
	for object, w := range r.unseen {
		if !same[object] {
			r.lag, r.lagAt = now.Sub(w.at), now
			delete(r.unseen, object)
		}
	}
}

// watchLag computes Report.WatchLag.
func (r *run[A]) watchLag(now time.Time) time.Duration {
	lag := time.Duration(0)
	if now.Sub(r.lagAt) < lagKept {
		lag = r.lag
	}
	for _, w := range r.unseen {
		lag = max(lag, now.Sub(w.at))
	}
	return lag
}

// oldestDue computes Report.OldestDue.
func (r *run[A]) oldestDue(actions []A, now time.Time) time.Time {
	due := make(map[string]time.Time, len(actions))
	oldest := time.Time{}
	for _, action := range actions {
		since, known := r.due[action.Object()]
		if !known {
			since = now
		}
		due[action.Object()] = since
		if oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	r.due = due
	return oldest
}

// publish makes the report visible to Report.
func (r *run[A]) publish(report Report) {
	report.Writes, report.Failing, report.WatchLag = r.writes, map[string]error{}, r.watchLag(report.At)
	for object, h := range r.held {
		if h.err != nil {
			report.Failing[object] = h.err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report = report
}
