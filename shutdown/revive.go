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
	// ErrNoService is what Starter.StartUnit returns where there is no such service, or somebody has
	// seen to it that it is not started: no retry changes that.
	ErrNoService = errors.New("no such service")
	// ErrStillStops is what it returns of one that has not ended yet, which a retry finds ended.
	ErrStillStops = errors.New("it is still stopping")
)

// Starter starts services again that a drain has stopped, before the pods or for a container of
// theirs.
type Starter interface {
	// UnitChanges reports whether a service still stops, or something else is about to be done
	// with it.
	UnitChanges(ctx context.Context, name string) (bool, error)
	// StartUnit begins to start one. ErrNoService and ErrStillStops say that it cannot.
	StartUnit(ctx context.Context, name string) error
	// UnitStart reports whether one that was started at a time is still about to be up, and if it
	// has failed instead, how.
	UnitStart(ctx context.Context, name string, since time.Time) (starting bool, failed string, err error)
	// Release is called when services are about to be started, and with them runtimes.
	Release()
}

const (
	// reviveBound is how long one try to start a service may take; it only begins to start.
	reviveBound = 5 * time.Second
	// revivePause is how long the next one waits at the most.
	revivePause = 30 * time.Second
	// stopsPause is how often one that still stops is tried: it is to be up soon after.
	stopsPause = 2 * time.Second
	// settleBound is how long all services are waited for that still stop, before the first is
	// started: one may need another, and would be started without it.
	settleBound = 15 * time.Second
	// settlePause is how often that is checked.
	settlePause = 200 * time.Millisecond
	// stopsBound is how long a service may take to stop before that is told.
	stopsBound = 5 * time.Minute
)

// reviver starts services again that drains of this boot have stopped, before the pods or for a
// container of theirs: the host does not go down. Run's goroutine owns it; starts and checks of
// what became of them are goroutines of their own, which see nothing of it that changes.
type reviver struct {
	starter Starter // nil if nobody can start services
	journal *journal.Journal
	log     *slog.Logger
	change  func(func(*Status))                                     // changes the status; for Run's goroutine
	send    func(ctx context.Context, command func()) (called bool) // has that call a function; for the others

	starting  func() // ends the starts in progress; nil while there are none
	following func() // ends the checks of what became of them; nil if there were none
}

// revive begins to start the services that are to be started. Until all are, that is not
// forgotten, also by the next process. None waits for another, nor does anybody else.
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
	// What was stopped last is needed by what was stopped before, and is started first.
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
		r.send(ctx, func() { r.starting = nil }) // unless a shutdown was announced again
	}()
}

// settle waits until none of the services still stops, for a while.
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

// start starts a service again, however often it takes, until ctx ends, or nobody wants that
// any more, and reports when it did, if so. One that still stops is not started before it has.
// It closes tried after the first attempt.
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
		case ctx.Err() != nil: // also if it was started: the next drain may have asked it to stop already
			return time.Time{}
		case err == nil:
			r.journal.NoteStarted(name, time.Now())
			r.log.Info("restarted service after cancelled shutdown", "unit", name)
			return asked
		case errors.Is(err, ErrNoService):
			r.journal.NoteStarted(name, time.Now()) // as good as that: nothing is to be done any more
			r.log.Warn("cannot restart service after cancelled shutdown", "unit", name, "error", err)
			return time.Time{}
		case errors.Is(err, ErrStillStops) && time.Since(began) < stopsBound: // nobody has to do anything
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

// noteDown has the status report why a service is not up again, and without a reason no more. It
// does nothing once ctx has ended, and another revival may have started.
func (r *reviver) noteDown(ctx context.Context, name string, why ...NotStarted) {
	r.send(ctx, func() {
		r.change(func(s *Status) {
			// What was handed out stays as it is.
			rest := slices.DeleteFunc(slices.Clone(s.NotStarted), func(n NotStarted) bool { return n.Unit == name })
			s.NotStarted = slices.SortedFunc(slices.Values(append(rest, why...)), func(a, b NotStarted) int { return strings.Compare(a.Unit, b.Unit) })
		})
	})
}

// isPending reports whether a service is to be started again.
func (r *reviver) isPending(name string) bool {
	return slices.ContainsFunc(r.journal.PendingServices(), func(s journal.Service) bool { return s.Name == name })
}

// end ends all starts and checks: the host goes down after all.
func (r *reviver) end() {
	r.endFollowing()
	if r.starting != nil {
		r.starting()
		r.starting = nil
		r.change(func(s *Status) { s.NotStarted = nil })
	}
}
