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

// episode is one period in Draining, from the announcement until the lock is released or the
// shutdown is cancelled. Run's goroutine owns it.
type episode struct {
	drain *drain.Drain

	cancelling bool // the drain was cancelled and is ending
	again      bool // a shutdown was announced again since
	kind       string
	reporting  bool   // all pods are stopped, and the final status is being written
	endReport  func() // cancels the current report, so that it cannot overwrite a later one
	waiters    []chan outcome
}

// outcome is the result of a call of Drain.
type outcome struct {
	record    journal.Record
	teardowns []<-chan struct{} // closed when the sandboxes of a drain are torn down
	err       error
}

// prepare handles the announcement of a shutdown.
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

// shutdownOf returns the text for a shutdown; its kind may be empty.
func shutdownOf(kind string) string {
	if kind == "" {
		return "a shutdown"
	}
	return fmt.Sprintf("a shutdown (%s)", kind)
}

// resume continues a cancelled episode. It does not wait for calls of the cancelled drain: the new
// drain repeats them.
func (e *episode) resume(kind string) {
	e.drain.Abandon()
	e.again, e.kind = true, kind
}

// begin enters Draining. The first stop does not wait for a report.
func (g *Guard) begin(trigger journal.Trigger, kind, reason string) {
	if g.status.State == Delegated {
		g.set(Disarmed, "no other owner of shutdown found any more")
	}
	g.reviver.end()
	record, start := g.options.Journal.Current().Clone(), time.Now()
	if record != nil && g.status.State != Released && start.After(record.StartedAt.Add(g.options.needed())) {
		// The recorded shutdown is over. A drain that continued it would kill all pods at once,
		// because its time has passed.
		record = nil
	}
	switch {
	case record == nil:
		first := slices.DeleteFunc(g.options.Journal.PendingServices(), func(s journal.Service) bool { return s.InTurn })
		g.options.Journal.Settle() // also settle a drain that was just cancelled, so that its containers are started again
		record = &journal.Record{BootID: g.options.Journal.BootID(), Trigger: trigger, Kind: kind, StartedAt: start, Pods: []journal.PodRecord{}, StoppedFirst: first}
	case record.FinishedAt.IsZero() && record.StartedAt.Before(start):
		// An earlier process started the drain, and its time counts. From here on the monotonic
		// clock is used, which times in the journal do not have.
		start = start.Add(min(record.Lead(start), drain.LongestLead) - start.Sub(record.StartedAt))
		g.log.Info("resumed interrupted drain", "started", start)
	}
	g.continueDrain(trigger, record, start, reason)
}

// continueDrain continues the drain of record. start is when its phases began. A finished record
// stays finished unless a pod runs.
func (g *Guard) continueDrain(trigger journal.Trigger, record *journal.Record, start time.Time, reason string) {
	if g.manual != nil {
		g.manual.Abandon()
		g.manual = nil
	}
	var granted time.Duration
	if g.lock != nil && trigger == journal.TriggerShutdown {
		// Without a lock, the host waits only for the end of this service, which the agent delays.
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
	g.setCurrent(record.Clone()) // so that Draining is never visible without its start
	early, cancelReport := context.WithDeadline(ctx, d.Deadline())
	e := &episode{drain: d, kind: record.Kind, endReport: cancelReport}
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

// onDrained writes the final status and the record, or ends a cancelled episode. After the lock is
// released, the power may go off, so everything must be on disk before.
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
		g.options.Journal.Flush(ctx) // wait for the write in progress
		g.send(run, func() { g.release(e) })
	}()
}

// release releases the lock, so that the shutdown continues.
func (g *Guard) release(e *episode) {
	if g.episode != e {
		return // cancelled while the status was being written
	}
	if g.arming.running {
		// The attempt may have adopted the lock, and a hanging logind may keep it from returning.
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
		// If another lock delays the shutdown, it may still be cancelled.
		g.arming.retry.Reset(askInterval)
	}
	e.answer(outcome{record: *record, teardowns: slices.Clone(g.teardowns)})
}

func (e *episode) answer(o outcome) {
	for _, w := range e.waiters {
		w <- o // the channel has capacity
	}
}

// cancel handles a cancelled shutdown.
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

// endCancelled leaves Draining after a cancellation, or starts another drain.
func (g *Guard) endCancelled(e *episode) {
	e.endReport()
	g.episode = nil
	record := e.drain.Record()
	if e.again {
		record.Kind, record.StartedAt = e.kind, time.Now()
		record.FinishedAt, record.CancelledAt, record.Graceful, record.Error = time.Time{}, time.Time{}, false, ""
		g.continueDrain(journal.TriggerShutdown, record, record.StartedAt, "a shutdown was announced again")
		g.episode.waiters = e.waiters
		return
	}
	record.FinishedAt, record.Graceful = time.Time{}, false // the drain may have finished before the cancellation
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
	// Check this even if the lock is held: another program may handle the shutdown now.
	if g.arming.subscribed {
		g.arm()
	}
}
