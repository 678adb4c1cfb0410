package shutdown

import (
	"context"
	"time"

	"hostler.io/hostler/shutdown/drain"
)

const (
	// reviveBound is how long one try to start a service may take; it only begins to start.
	reviveBound = 5 * time.Second
	// revivePause is how long the next one waits at the most.
	revivePause = 30 * time.Second
)

// revive begins to start the services again that the drain of this boot has stopped first,
// and tells whether there are any: the host lives on. Until all are, that is not forgotten,
// also by the next process.
func (g *Guard) revive() (owed bool) {
	services := g.options.Journal.Owed()
	if len(services) == 0 || g.options.First == nil {
		return false
	}
	if g.reviving != nil {
		return true
	}
	ctx, cancel := context.WithCancel(g.ctx)
	g.reviving = cancel
	run := g.ctx
	g.options.First.Release()
	go func() {
		for _, s := range services {
			if !g.start(ctx, s.Name) {
				cancel()
				return // a shutdown is announced anew, or the agent ends
			}
		}
		select {
		case g.commands <- func() {
			defer cancel()
			if ctx.Err() == nil {
				g.reviving = nil
				g.settle()
			}
		}:
		case <-run.Done():
			cancel()
		}
	}()
	return true
}

// start starts a service again, however often it takes, and tells whether it did before ctx
// ended.
func (g *Guard) start(ctx context.Context, name string) (started bool) {
	var pauses backoff
	for failed := false; ctx.Err() == nil; failed = true {
		bounded, cancel := context.WithTimeout(ctx, reviveBound)
		err := drain.Bounded(bounded, func() error { return g.options.First.Start(bounded, name) })
		cancel()
		switch {
		case err == nil:
			g.options.Journal.NoteStarted(name, time.Now())
			g.log.Info("a service that was stopped before the pods is started again, for the host does not go down", "unit", name)
			return true
		case ctx.Err() != nil:
			return false
		case !failed:
			g.log.Warn("a service that was stopped before the pods does not start again, will try again; `systemctl start "+name+"` starts it by hand", "unit", name, "error", err)
		}
		drain.Sleep(ctx, pauses.next(revivePause))
	}
	return false
}

// endRevival has no more services be started: the host goes down after all.
func (g *Guard) endRevival() {
	if g.reviving != nil {
		g.reviving()
		g.reviving = nil
	}
}
