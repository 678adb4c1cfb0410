package selfdrain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/shutdown/journal"
)

// round is the state of Run's goroutine.
type round struct {
	e         *Controller
	announced []Cause       // scheduled drains that were reported
	running   *drainRun     // nil if no drain runs
	tries     int           // drains that left a pod running
	retryAt   time.Duration // no drain before this time
	refused   bool          // the last drain was rejected; logged once
}

// drainRun is a drain in progress.
type drainRun struct {
	order     maintenance.Order
	cancel    context.CancelFunc
	withdrawn bool // its cause ended
	over      chan outcome
}

// outcome is the result of a drain.
type outcome struct {
	record journal.Record
	err    error
}

// over returns the channel of the running drain's outcome; nil if none runs.
func (r *round) over() <-chan outcome {
	if r.running == nil {
		return nil
	}
	return r.running.over
}

// announce reports newly scheduled drains, and those that are no longer due because their cause
// ended.
func (r *round) announce(d Decision, now time.Duration) {
	scheduled := d.in(Scheduled)
	for _, c := range scheduled {
		if !known(r.announced, c) {
			at := r.e.o.Now().Wall.Add(c.Due - now)
			r.e.log.Warn("drain scheduled", "cause", c.String(), "at", at, "hint", r.e.o.Fix(c))
			r.e.o.Announce(corev1.EventTypeWarning, "DrainScheduled", fmt.Sprintf("drains at %s: %s; %s", at.UTC().Format(time.RFC3339), c, r.e.o.Fix(c)))
		}
	}
	for _, c := range r.announced {
		if !known(d.Causes, c) {
			r.withdraw(c.String(), "before it began")
		}
	}
	r.announced = scheduled
}

// withdraw reports a drain that is no longer needed.
func (r *round) withdraw(cause, when string) {
	r.e.log.Info("drain withdrawn, its cause ended", "cause", cause, "when", when)
	r.e.o.Announce(corev1.EventTypeNormal, "DrainWithdrawn", fmt.Sprintf("%s: ended %s", cause, when))
}

// act starts or cancels a drain. It returns the time until the next decision; zero if only new
// facts can change it.
func (r *round) act(ctx context.Context, d Decision, now time.Duration) (next time.Duration) {
	if d.Next > 0 {
		next = d.Next - now
	}
	over, due := d.in(Held, Due), d.in(Due)
	switch {
	case r.running != nil:
		if len(over) == 0 && !r.running.withdrawn {
			r.running.withdrawn = true
			r.running.cancel()
		}
	case len(over) == 0:
		r.tries, r.retryAt, r.refused = 0, 0, false
		if left := r.e.interrupted(); left != nil {
			r.undo(ctx, left.order())
		}
		if r.e.interrupted() != nil && (next == 0 || refusedPause < next) { // not undone yet
			next = refusedPause
		}
	case len(due) > 0 && now >= r.retryAt:
		r.start(ctx, r.e.order(due[0]))
	case len(due) > 0 && (next == 0 || r.retryAt-now < next):
		next = r.retryAt - now
	}
	if len(d.Causes) > 0 && next == 0 { // if a kubelet takes over, nothing reports the end of the causes
		next = recheck
	}
	return next
}

func (r *round) start(ctx context.Context, o maintenance.Order) {
	ctx, cancel := context.WithCancel(ctx)
	run := &drainRun{order: o, cancel: cancel, over: make(chan outcome, 1)}
	r.running = run
	go func() {
		defer cancel()
		cause, err := r.e.confirm(ctx)
		if err != nil {
			run.over <- outcome{err: err}
			return
		}
		o := r.e.order(cause)
		run.order = o // read only after the outcome
		r.e.setDraining(true)
		record, err := r.e.o.Drainer.DrainForCause(ctx, o, func(at time.Time) error { return r.e.remember(ctx, o, at) })
		run.over <- outcome{record, err}
	}()
}

// conclude handles the end of a drain. d has the current state of the causes.
func (r *round) conclude(ctx context.Context, o outcome, d Decision, now time.Duration) {
	run := r.running
	r.running = nil
	r.e.setDraining(false)
	r.e.setTrouble("")
	switch {
	case o.err == nil && o.record.Graceful:
		r.tries, r.refused = 0, false
		r.e.done(d.in(Due))
	case run.withdrawn, len(d.in(Held, Due)) == 0:
		if left := r.e.interrupted(); left != nil {
			r.undo(ctx, left.order())
		}
	case o.err != nil:
		if !r.refused {
			r.e.log.Warn("cannot drain yet, retrying", "cause", run.order.Cause, "error", o.err)
		}
		r.e.setTrouble(o.err.Error())
		r.refused, r.retryAt = true, now+refusedPause
	case r.tries+1 >= maxTries:
		r.e.log.Warn("drain gave up, pods still running", "cause", run.order.Cause, "tries", maxTries)
		r.tries = 0
		r.e.done(d.in(Due))
	default:
		r.retryAt = now + incompletePause<<r.tries
		r.tries++
	}
}

// undo starts the containers again that the drain has stopped.
func (r *round) undo(ctx context.Context, o maintenance.Order) {
	if _, err := r.e.o.Drainer.Undo(ctx, o); err != nil || ctx.Err() != nil {
		return // the next round or process undoes it, again if need be
	}
	r.e.forget()
	r.withdraw(o.Cause, "during the drain")
}

// end waits for the running drain. The next process continues it.
func (r *round) end() {
	if r.running == nil {
		return
	}
	r.running.cancel()
	select {
	case <-r.running.over:
	case <-time.After(endBound):
	}
	r.e.setDraining(false)
}
