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
	// ErrNoService is returned by Starter.StartUnit if the service does not exist or is masked. A
	// retry is useless.
	ErrNoService = errors.New("no such service")
	// ErrStillStops is returned for a service that is still stopping. Retry later.
	ErrStillStops = errors.New("it is still stopping")
)

// Starter starts the services again that a drain stopped: before the pods, or because they run one
// of their containers.
type Starter interface {
	// UnitChanges reports whether a service is still stopping, or has a queued job.
	UnitChanges(ctx context.Context, name string) (bool, error)
	// StartUnit requests the start of a service, and does not wait for it. Errors: ErrNoService,
	// ErrStillStops.
	StartUnit(ctx context.Context, name string) error
	// UnitStart reports whether a service that was started at since is still starting. If it has
	// failed, failed is the result.
	UnitStart(ctx context.Context, name string, since time.Time) (starting bool, failed string, err error)
	// Release is called before services are started, because their runtimes may start with them.
	Release()
}

const (
	// reviveBound bounds one attempt, which only requests the start.
	reviveBound = 5 * time.Second
	// revivePause is the longest pause between attempts.
	revivePause = 30 * time.Second
	// stopsPause is the pause between attempts while the service is still stopping. It is short, so
	// that the service starts soon after.
	stopsPause = 2 * time.Second
	// settleBound is how long to wait, before the first start, for services that are still
	// stopping. One may depend on another.
	settleBound = 15 * time.Second
	// settlePause is the interval of these checks.
	settlePause = 200 * time.Millisecond
	// stopsBound is how long a service may be stopping before that is reported.
	stopsBound = 5 * time.Minute
)

// reviver starts the services again that drains of this boot stopped, if the host does not shut
// down. Run's goroutine owns it. Starts and checks run in their own goroutines and do not access
// its mutable fields.
type reviver struct {
	starter Starter // nil if services cannot be started
	journal *journal.Journal
	log     *slog.Logger
	change  func(func(*Status))                                     // changes the status; call it only in Run's goroutine
	send    func(ctx context.Context, command func()) (called bool) // calls a function in Run's goroutine

	starting  func() // cancels the starts in progress; nil if there are none
	following func() // cancels the checks of started services; nil if there are none
}

// revive starts the pending services in parallel. They stay in the journal until they have started,
// so that the next process can continue.
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
	// The services that were stopped first may depend on the later ones, so start the later ones
	// first.
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
		r.send(ctx, func() { r.starting = nil }) // has no effect if a shutdown was announced again
	}()
}

// settle waits until no service is stopping, at most for settleBound.
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

// start retries until the service has started, ctx ends, or the service is no longer pending. It
// waits for a service that is still stopping. It closes tried after the first attempt.
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
		case ctx.Err() != nil: // even if it was started: the next drain may have stopped it already
			return time.Time{}
		case err == nil:
			r.journal.NoteStarted(name, time.Now())
			r.log.Info("restarted service after cancelled shutdown", "unit", name)
			return asked
		case errors.Is(err, ErrNoService):
			r.journal.NoteStarted(name, time.Now()) // no longer pending
			r.log.Warn("cannot restart service after cancelled shutdown", "unit", name, "error", err)
			return time.Time{}
		case errors.Is(err, ErrStillStops) && time.Since(began) < stopsBound: // not reported yet
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

// noteDown shows in the status why a service does not run; without a reason, it removes the
// service. It does nothing after ctx has ended, because other starts may have begun.
func (r *reviver) noteDown(ctx context.Context, name string, why ...NotStarted) {
	r.send(ctx, func() {
		r.change(func(s *Status) {
			// Published values must not be modified.
			rest := slices.DeleteFunc(slices.Clone(s.NotStarted), func(n NotStarted) bool { return n.Unit == name })
			s.NotStarted = slices.SortedFunc(slices.Values(append(rest, why...)), func(a, b NotStarted) int { return strings.Compare(a.Unit, b.Unit) })
		})
	})
}

// isPending reports whether a service is waiting for its start.
func (r *reviver) isPending(name string) bool {
	return slices.ContainsFunc(r.journal.PendingServices(), func(s journal.Service) bool { return s.Name == name })
}

// end ends all starts and checks, because the host shuts down.
func (r *reviver) end() {
	r.endFollowing()
	if r.starting != nil {
		r.starting()
		r.starting = nil
		r.change(func(s *Status) { s.NotStarted = nil })
	}
}
