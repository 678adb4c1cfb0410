package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/shutdown/journal"
)

var (
	// ErrNoService is returned by Starter.StartUnit if the service does not exist or is masked: no
	// retry helps.
	ErrNoService = errors.New("no such service")
	// ErrStillStops is returned for a service that has not ended yet; retry later.
	ErrStillStops = errors.New("it is still stopping")
)

// Starter starts services again that a drain stopped before the pods, or to stop one of their
// containers.
type Starter interface {
	// UnitChanges reports whether a service is still stopping, or another job for it waits.
	UnitChanges(ctx context.Context, name string) (bool, error)
	// StartUnit starts a service without waiting. ErrNoService and ErrStillStops say why it cannot.
	StartUnit(ctx context.Context, name string) error
	// UnitStart reports whether a service that was started at that time is still starting. If it has
	// failed, failed says how.
	UnitStart(ctx context.Context, name string, since time.Time) (starting bool, failed string, err error)
	// Release is called before services, and with them runtimes, are started.
	Release()
}

const (
	// reviveBound is the longest time of one attempt, which only begins the start.
	reviveBound = 5 * time.Second
	// revivePause is the longest pause between attempts.
	revivePause = 30 * time.Second
	// stopsPause is the pause between attempts while the service is still stopping: it should start
	// soon after.
	stopsPause = 2 * time.Second
	// settleBound is how long to wait for services that are still stopping before the first is
	// started: one may need another.
	settleBound = 15 * time.Second
	// settlePause is how often that is checked.
	settlePause = 200 * time.Millisecond
	// stopsBound is how long a service may take to stop before that is reported.
	stopsBound = 5 * time.Minute
)

// reviver starts services again that drains of this boot stopped, if the host does not go down. Run's
// goroutine owns it. Starts and checks run in their own goroutines and see none of its mutable state.
type reviver struct {
	starter Starter // nil if nobody can start services
	journal *journal.Journal
	log     *slog.Logger
	change  func(func(*Status))                                     // changes the status; for Run's goroutine
	send    func(ctx context.Context, command func()) (called bool) // calls a function in Run's goroutine; for the other goroutines

	starting  func() // ends the starts in progress; nil while there are none
	following func() // ends the checks of started services; nil if there are none
}

// revive starts the pending services, all in parallel. They stay on record until all have started,
// also for the next process.
func (r *reviver) revive(run context.Context) {
	services := r.journal.PendingServices()
	if len(services) == 0 || r.starter == nil || r.starting != nil {
		return
	}
	r.starter.Release()
	ctx, cancel := context.WithCancel(run)
	r.starting = cancel
	r.endFollowing()
	following, end := context.WithCancel(run)
	r.following = end
	// A service that was stopped later is needed by those before it, so it is started first.
	slices.SortStableFunc(services, func(a, b journal.Service) int { return b.AskedAt.Compare(a.AskedAt) })
	go func() {
		defer cancel()
		r.settle(ctx, services)
		var starts sync.WaitGroup
		for _, s := range services {
			tried := make(chan struct{})
			starts.Go(func() {
				if at := r.start(ctx, s.Name, tried); !at.IsZero() {
					go r.follow(following, s.Name, at)
				}
			})
			<-tried
		}
		starts.Wait()
		r.send(ctx, func() { r.starting = nil }) // not if a shutdown was announced again
	}()
}

// settle waits, for a while, until no service is stopping any more.
func (r *reviver) settle(ctx context.Context, services []journal.Service) {
	ctx, cancel := context.WithTimeout(ctx, settleBound)
	defer cancel()
	for ctx.Err() == nil && slices.ContainsFunc(services, func(s journal.Service) bool {
		changes, err := r.starter.UnitChanges(ctx, s.Name)
		return changes && err == nil
	}) {
		_ = bounded.Sleep(ctx, settlePause)
	}
}

// start retries until the service has started, ctx ends, or the start is no longer wanted. It waits
// for a service that is still stopping. It closes tried after the first attempt.
func (r *reviver) start(ctx context.Context, name string, tried chan<- struct{}) (at time.Time) {
	first := sync.OnceFunc(func() { close(tried) })
	defer first()
	defer r.noteDown(ctx, name)
	var pauses backoff
	failed, began := false, time.Now()
	for ctx.Err() == nil && r.isPending(name) {
		asked := time.Now()
		call, cancel := context.WithTimeoutCause(ctx, reviveBound, fmt.Errorf("no answer to the start request for %v", reviveBound))
		err := bounded.Call(call, func() error { return r.starter.StartUnit(call, name) })
		cancel()
		first()
		switch {
		case ctx.Err() != nil: // also if it was started: the next drain may have stopped it already
			return time.Time{}
		case err == nil:
			r.journal.NoteStarted(name, time.Now())
			r.log.Info("restarted service after cancelled shutdown", "unit", name)
			return asked
		case errors.Is(err, ErrNoService):
			r.journal.NoteStarted(name, time.Now()) // nothing remains to be done
			r.log.Warn("cannot restart service after cancelled shutdown", "unit", name, "error", err)
			return time.Time{}
		case errors.Is(err, ErrStillStops) && time.Since(began) < stopsBound: // not a problem yet
			r.noteDown(ctx, name)
			_ = bounded.Sleep(ctx, stopsPause)
			continue
		default:
			if !failed {
				r.log.Warn("cannot restart service after cancelled shutdown, retrying; run `systemctl start "+name+"` to start it manually", "unit", name, "error", err)
			}
			failed = true
			r.noteDown(ctx, name, NotStarted{Unit: name, Reason: err.Error()})
		}
		_ = bounded.Sleep(ctx, pauses.next(revivePause))
	}
	return time.Time{}
}

// noteDown shows in the status why a service is not running; an empty reason removes it. It does
// nothing once ctx has ended, since another revival may have started.
func (r *reviver) noteDown(ctx context.Context, name string, why ...NotStarted) {
	r.send(ctx, func() {
		r.change(func(s *Status) {
			// Published values are not changed.
			rest := slices.DeleteFunc(slices.Clone(s.NotStarted), func(n NotStarted) bool { return n.Unit == name })
			s.NotStarted = slices.SortedFunc(slices.Values(append(rest, why...)), func(a, b NotStarted) int { return strings.Compare(a.Unit, b.Unit) })
		})
	})
}

// isPending reports whether a service waits for its start.
func (r *reviver) isPending(name string) bool {
	return slices.ContainsFunc(r.journal.PendingServices(), func(s journal.Service) bool { return s.Name == name })
}

// end ends all starts and checks, because the host goes down.
func (r *reviver) end() {
	r.endFollowing()
	if r.starting != nil {
		r.starting()
		r.starting = nil
		r.change(func(s *Status) { s.NotStarted = nil })
	}
}
