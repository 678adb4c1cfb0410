package shutdown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
)

// episode is one stay in Draining, from the announcement to the release of the
// lock or the cancellation. Run's goroutine owns it.
type episode struct {
	drain *drain.Drain

	cancelling bool // the drain is winding down
	again      bool // and a shutdown was announced again meanwhile
	kind       string
	reporting  bool   // all is stopped, and the final status is being written
	endReport  func() // ends the report in progress, lest it overtake a later word
	waiters    []chan outcome
}

// outcome is the answer to a call of Drain.
type outcome struct {
	record    journal.Record
	teardowns []<-chan struct{} // closed when sandboxes are torn down, too
	err       error
}

// prepare takes in the announcement of a shutdown.
func (g *Guard) prepare(kind string) {
	switch state := g.status.State; {
	case state == Delegated, g.arming.final && state == Released:
	case state == Draining:
		if g.episode.cancelling {
			g.episode.resume(kind)
		}
	default:
		g.begin(journal.TriggerShutdown, kind, shutdownOf(kind)+" was announced")
	}
}

// shutdownOf names a shutdown of a kind that may not be known.
func shutdownOf(kind string) string {
	if kind == "" {
		return "a shutdown"
	}
	return fmt.Sprintf("a shutdown (%s)", kind)
}

// resume has the episode continue although it was cancelled. No time is lost on
// calls of before: the new drain makes them again.
func (e *episode) resume(kind string) {
	e.drain.Abandon()
	e.again, e.kind = true, kind
}

// begin enters Draining. The first stop does not wait for anybody who is told.
func (g *Guard) begin(trigger journal.Trigger, kind, reason string) {
	if g.status.State == Delegated {
		g.set(Disarmed, "no other owner of shutdown found any more")
	}
	g.reviver.end()
	record, start := g.options.Journal.Current().Clone(), time.Now()
	if record != nil && g.status.State != Released && start.After(record.StartedAt.Add(g.options.needed())) {
		// That shutdown is over, whatever became of it. To continue with it would
		// mean to kill everything at once.
		record = nil
	}
	switch {
	case record == nil:
		first := slices.DeleteFunc(g.options.Journal.PendingServices(), func(s journal.Service) bool { return s.InTurn })
		g.options.Journal.Settle() // also one that was cancelled a moment ago: what it has stopped is not forgotten
		record = &journal.Record{BootID: g.options.Journal.BootID(), Trigger: trigger, Kind: kind, StartedAt: start, Pods: []journal.PodRecord{}, StoppedFirst: first}
	case record.FinishedAt.IsZero() && record.StartedAt.Before(start):
		// An earlier process began it, and the time it took is gone. From here on
		// the monotonic clock counts, which a time from the journal lacks.
		start = start.Add(min(record.Lead(start), drain.LongestLead) - start.Sub(record.StartedAt))
		g.log.Info("resumed interrupted drain", "started", start)
	}
	g.carryOn(trigger, record, start, reason)
}

// carryOn drains from record on. Its phases count from start. A record that is
// finished stays so unless something runs.
func (g *Guard) carryOn(trigger journal.Trigger, record *journal.Record, start time.Time, reason string) {
	if g.manual != nil {
		g.manual.Abandon()
		g.manual = nil
	}
	var granted time.Duration
	if g.lock != nil && trigger == journal.TriggerShutdown {
		// Otherwise only the end of this service is waited for, which the agent
		// puts off.
		granted = g.status.InhibitDelayMax.Duration
	}
	ctx := g.ctx
	d := drain.New(drain.Options{
		Log: g.log, Roster: g.roster, Phases: g.options.Phases, Rules: g.options.Rules, Granted: granted, Start: start, Record: record,
		Publish: func(r *journal.Record) {
			g.options.Journal.Put(r)
			g.send(ctx, func() { g.setCurrent(r) })
		},
		First: g.options.First, UnitStops: g.recordStoppedUnits, Flush: g.options.Journal.Flush,
	})
	g.setCurrent(record.Clone()) // who sees Draining sees since when
	early, hush := context.WithDeadline(ctx, d.Deadline())
	e := &episode{drain: d, kind: record.Kind, endReport: hush}
	g.episode = e
	g.teardowns = append(slices.DeleteFunc(g.teardowns, drain.Closed), d.Idle())
	go func() {
		d.Run(ctx)
		g.send(ctx, func() { g.onDrained(e) })
	}()
	g.trigger = trigger
	g.change(func(s *Status) { s.Deadline = d.Deadline().Add(d.ReportBound()) })
	g.set(Draining, reason)
	if trigger == journal.TriggerShutdown {
		g.askAgain()
	}
	if g.options.Reporter != nil {
		status := g.Status()
		go func() {
			if err := g.options.Reporter.ReportShutdown(early, status); err != nil && early.Err() == nil {
				g.log.Warn("cannot report the drain to the control plane", "error", err)
			}
		}()
	}
}

// onDrained has the final status and the record written, or ends a cancelled
// episode. The power may go the moment that the lock does: what is not on disk
// then, the next boot does not know.
func (g *Guard) onDrained(e *episode) {
	e.endReport()
	if e.cancelling {
		g.endCancelled(e)
		return
	}
	e.reporting = true
	run, status := g.ctx, g.Status()
	ctx, cancel := context.WithTimeout(run, e.drain.ReportBound())
	e.endReport = cancel
	go func() {
		defer cancel()
		if reporter := g.options.Reporter; reporter != nil {
			err := bounded.Call(ctx, func() error { return reporter.ReportShutdown(ctx, status) })
			if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
				g.log.Warn("cannot write final status, continuing shutdown without it", "error", err)
			}
		}
		g.options.Journal.Flush(ctx) // it was being written meanwhile
		g.send(run, func() { g.release(e) })
	}()
}

// release gives up the lock: all is done that the shutdown had to wait for.
func (g *Guard) release(e *episode) {
	if g.episode != e {
		return // cancelled while the status was being written
	}
	if g.arming.underWay {
		// It may have taken the lock over, and a login manager that hangs may
		// keep it from telling.
		g.arming.stop()
		g.arming.again = true
	}
	g.drop()
	g.episode = nil
	record := e.drain.Record()
	reason := "all pods stopped"
	if !record.Graceful {
		reason = "out of time, pods may still be running"
	}
	g.set(Released, reason)
	if !g.arming.final {
		// Another client's lock may hold the shutdown back, and it may be
		// cancelled yet.
		g.arming.retry.Reset(askInterval)
	}
	e.answer(outcome{record: *record, teardowns: slices.Clone(g.teardowns)})
}

func (e *episode) answer(o outcome) {
	for _, w := range e.waiters {
		w <- o // has space for it
	}
}

// cancel takes in that the shutdown does not take place.
func (g *Guard) cancel() {
	switch e := g.episode; {
	case g.arming.final:
		g.log.Info("ignored cancellation: systemd is already shutting down")
	case e != nil && e.reporting:
		g.endCancelled(e)
	case e != nil && !e.cancelling:
		e.cancelling = true
		g.arming.retry.Stop()
		e.drain.Cancel()
	case e != nil && e.again:
		e.again = false
	case g.status.State == Released:
		if record := g.options.Journal.Current().Clone(); record != nil {
			record.CancelledAt = time.Now()
			g.options.Journal.Put(record)
			g.setCurrent(record)
		}
		g.set(Disarmed, "the shutdown was cancelled")
		if g.arming.subscribed {
			g.arm()
		}
	}
}

// endCancelled leaves Draining after a cancellation, or begins again.
func (g *Guard) endCancelled(e *episode) {
	e.endReport()
	g.episode = nil
	record := e.drain.Record()
	if e.again {
		record.Kind, record.StartedAt = e.kind, time.Now()
		record.FinishedAt, record.CancelledAt, record.Graceful, record.Error = time.Time{}, time.Time{}, false, ""
		g.carryOn(journal.TriggerShutdown, record, record.StartedAt, "a shutdown was announced again")
		g.episode.waiters = e.waiters
		return
	}
	record.FinishedAt, record.Graceful = time.Time{}, false // it may have ended before it heard
	if record.CancelledAt.IsZero() {
		record.CancelledAt = time.Now()
	}
	g.options.Journal.Put(record)
	g.setCurrent(record)
	e.answer(outcome{record: *record, err: ErrCancelled})
	if g.lock != nil && g.arming.subscribed {
		g.set(Armed, "shutdown cancelled, lock still held")
	} else {
		g.set(Disarmed, "the shutdown was cancelled")
	}
	// Also with the lock in hand: another client may be its owner now.
	if g.arming.subscribed {
		g.arm()
	}
}
