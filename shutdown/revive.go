package shutdown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
)

var (
	// ErrNoService is what Starter.Start returns where there is no such service, or somebody has
	// seen to it that it is not started: no retry changes that.
	ErrNoService = errors.New("there is no such service to start")
	// ErrStillStops is what it returns of one that has not ended yet, which a retry finds ended.
	ErrStillStops = errors.New("it still stops")
)

// Starter starts services again that a drain has stopped, before the pods or for a container of
// theirs.
type Starter interface {
	// Start begins to start one. ErrNoService and ErrStillStops say that it cannot.
	Start(ctx context.Context, name string) error
	// Fares tells whether one that was started at a time is still about to be up, and if it has
	// failed instead, how.
	Fares(ctx context.Context, name string, since time.Time) (starting bool, failed string, err error)
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
	// stopsBound is how long a service may take to stop before that is told.
	stopsBound = 5 * time.Minute
)

// revive begins to start the services again that drains of this boot have stopped, before the
// pods or for a container of theirs: the host lives on. Until all are, that is not forgotten,
// also by the next process. None waits for another, nor does anybody else.
func (g *Guard) revive() {
	services := g.options.Journal.Owed()
	if len(services) == 0 || g.options.Starter == nil || g.reviving != nil {
		return
	}
	g.options.Starter.Release()
	ctx, cancel := context.WithCancel(g.ctx)
	g.reviving = cancel
	g.endFollowing()
	following, end := context.WithCancel(g.ctx)
	g.following = end
	run := g.ctx
	var starts sync.WaitGroup
	for _, s := range services {
		starts.Go(func() {
			if at := g.start(ctx, s.Name); !at.IsZero() {
				go g.follow(following, s.Name, at)
			}
		})
	}
	go func() {
		defer cancel()
		starts.Wait()
		select {
		case g.commands <- func() {
			if ctx.Err() == nil { // else a shutdown was announced anew
				g.reviving = nil
			}
		}:
		case <-run.Done():
		}
	}()
}

// start starts a service again, however often it takes, until ctx ends, or nobody wants that
// any more, and tells when it did, if so. One that still stops is not started before it has.
func (g *Guard) start(ctx context.Context, name string) (at time.Time) {
	defer g.noteDown(ctx, name)
	var pauses backoff
	failed, began := false, time.Now()
	for ctx.Err() == nil && g.owes(name) {
		asked := time.Now()
		bounded, cancel := context.WithTimeoutCause(ctx, reviveBound, fmt.Errorf("no answer to the order to start it for %v", reviveBound))
		err := drain.Bounded(bounded, func() error { return g.options.Starter.Start(bounded, name) })
		cancel()
		switch {
		case ctx.Err() != nil: // also if it was started: the next drain may have asked it to stop already
			return time.Time{}
		case err == nil:
			g.options.Journal.NoteStarted(name, time.Now())
			g.log.Info("a service that the shutdown had stopped is started again, for the host does not go down", "unit", name)
			return asked
		case errors.Is(err, ErrNoService):
			g.options.Journal.NoteStarted(name, time.Now()) // as good as that: nothing is to be done any more
			g.log.Warn("a service that the shutdown had stopped stays down", "unit", name, "error", err)
			return time.Time{}
		case errors.Is(err, ErrStillStops) && time.Since(began) < stopsBound: // nobody has to do anything
			g.noteDown(ctx, name)
			drain.Sleep(ctx, stopsPause)
			continue
		default:
			if !failed {
				g.log.Warn("a service that the shutdown had stopped does not start again yet, will try again; `systemctl start "+name+"` starts it by hand", "unit", name, "error", err)
			}
			failed = true
			g.noteDown(ctx, name, NotStarted{Unit: name, Reason: err.Error()})
		}
		drain.Sleep(ctx, pauses.next(revivePause))
	}
	return time.Time{}
}

// noteDown has the status tell why a service is not up again, and without a reason no more. It
// does nothing once ctx has ended, and another revival may have begun.
func (g *Guard) noteDown(ctx context.Context, name string, why ...NotStarted) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	// What was handed out stays as it is.
	rest := slices.DeleteFunc(slices.Clone(g.status.NotStarted), func(n NotStarted) bool { return n.Unit == name })
	g.status.NotStarted = slices.SortedFunc(slices.Values(append(rest, why...)), func(a, b NotStarted) int { return strings.Compare(a.Unit, b.Unit) })
}

// owes tells whether a service is to be started again.
func (g *Guard) owes(name string) bool {
	return slices.ContainsFunc(g.options.Journal.Owed(), func(s journal.Service) bool { return s.Name == name })
}

// endRevival has no more services be started: the host goes down after all.
func (g *Guard) endRevival() {
	g.endFollowing()
	if g.reviving != nil {
		g.reviving()
		g.reviving = nil
		g.mu.Lock()
		defer g.mu.Unlock()
		g.status.NotStarted = nil
	}
}
