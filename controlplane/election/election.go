// Package election lets one of several servers run a controller. It owns the times of a term; the
// store decides who leads.
package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/bounded"
)

const (
	// Duration is how long a term lasts unless it is extended. After a leader was killed, another
	// server leads after at most Duration and one Interval.
	Duration = 12 * time.Second
	// Deadline is when a leader that cannot extend its term stops: before another term can begin.
	Deadline = 8 * time.Second
	// Interval is the time between attempts.
	Interval = 2 * time.Second
	// callTimeout bounds one attempt.
	callTimeout = 4 * time.Second
)

// errNotExtended is why a leader stops.
var errNotExtended = errors.New("cannot extend the leadership in time")

// Election is one candidate for one controller.
type Election struct {
	store      store.Elector
	controller string
	candidate  string
	log        *slog.Logger

	mu     sync.Mutex // guards status
	status Status
}

// Status names the leader, as this candidate knows it.
type Status struct {
	Leading bool
	Leader  store.Leader
	Err     error // of the last attempt
}

// New returns a candidate that has not tried to lead yet. The candidate's name must be unique, such
// as host and process.
func New(s store.Elector, controller, candidate string, log *slog.Logger) *Election {
	return &Election{store: s, controller: controller, candidate: candidate, log: log.With("component", "election", "controller", controller)}
}

// Status returns who leads.
func (e *Election) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}

// Run tries to lead until ctx ends, and calls lead for each term. lead must return soon after its
// context ends. heartbeat receives the result of each attempt.
func (e *Election) Run(ctx context.Context, lead func(context.Context, store.Term) error, heartbeat func(error)) error {
	for {
		began := time.Now()
		term, leader, err := e.elect(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		won := err == nil && term != store.Term{}
		e.note(Status{Leading: won, Leader: leader, Err: err})
		heartbeat(err)
		if won {
			e.log.Info("leading")
			err := e.serve(ctx, term, began, lead, heartbeat)
			e.note(Status{})
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			e.log.Warn("no longer leading", "reason", err)
		}
		if err := bounded.Sleep(ctx, Interval); err != nil {
			return err
		}
	}
}

func (e *Election) elect(ctx context.Context) (store.Term, store.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return e.store.Elect(ctx, e.controller, e.candidate, Duration)
}

func (e *Election) note(s Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.Err != nil && s.Leader == (store.Leader{}) {
		s.Leader = e.status.Leader
	}
	e.status = s
}

// serve leads for one term. extended is when the term was requested. serve gives the term back when
// lead has returned, so that the next leader does not have to wait.
func (e *Election) serve(ctx context.Context, term store.Term, extended time.Time, lead func(context.Context, store.Term) error, heartbeat func(error)) error {
	leading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() { ended <- lead(leading, term) }()
	until := extended.Add(Deadline)
	deadline := time.AfterFunc(time.Until(until), func() { stop(errNotExtended) })
	defer deadline.Stop()
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			e.resign(ctx, term)
			if leading.Err() != nil {
				err = context.Cause(leading)
			}
			return err
		case <-ticker.C:
			began := time.Now()
			if !began.Before(until) { // the deadline is a multiple of the interval, so both may be due at once
				continue
			}
			err := e.extend(leading, term)
			heartbeat(err)
			switch {
			case err == nil:
				until = began.Add(Deadline)
				deadline.Reset(time.Until(until))
			case errors.Is(err, store.ErrDeposed):
				stop(err)
			}
		}
	}
}

func (e *Election) extend(ctx context.Context, term store.Term) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return e.store.Extend(ctx, term)
}

// resign gives a term back, even if ctx has ended.
func (e *Election) resign(ctx context.Context, term store.Term) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := e.store.Resign(ctx, term); err != nil {
		e.log.Warn("cannot give the leadership back, it ends by itself", "error", fmt.Errorf("resign: %w", err), "after", Duration)
	}
}
