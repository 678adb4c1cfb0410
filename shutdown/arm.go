package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// armBound bounds one attempt to take the lock.
const armBound = 20 * time.Second

// attempt is the result of one attempt to take the lock.
type attempt struct {
	announcements int // number of announcements when the attempt began

	evidence   string // of the other owner
	delegated  bool
	unyielding error // why hostler's drop-in may shorten the owner's delay

	lock      io.Closer // nil if no lock was requested or granted
	refused   bool      // because a shutdown is in progress
	preparing bool
	kind      string // of the shutdown that prevents the lock, if known
	err       error  // why it failed

	granted  time.Duration
	none     bool // no delay is granted; false if that is unknown
	source   string
	shortage error // why less is granted than needed
}

// arming is the state of taking the lock. Run's goroutine owns it.
type arming struct {
	subscribed    bool
	announcements int                // number of announcements; the result of an attempt from before the last one is outdated
	running       bool               // an attempt is running
	again         bool               // start another attempt after it
	stop          context.CancelFunc // cancels the latest attempt
	retry         *time.Timer
	retries       backoff
	trouble       error // why the guard is not armed
	final         bool  // systemd shuts down: no further attempt, and a released lock is not taken again
}

// arm starts an attempt to take the lock, in its own goroutine, so that Run still receives
// announcements. Attempts run one after the other, because only the last returned lock counts.
func (g *Guard) arm() {
	g.arming.retry.Stop()
	if g.arming.final {
		return
	}
	if g.arming.running {
		g.arming.again = true
		return
	}
	g.arming.running = true
	a, run := attempt{announcements: g.arming.announcements}, g.ctx
	inProgress := g.status.State == Released || g.status.State == Draining
	ctx, cancel := context.WithTimeout(run, armBound)
	g.arming.stop = cancel
	go func() {
		defer cancel()
		a.take(ctx, g.options, inProgress)
		g.send(run, func() { g.onAttempt(a) }) // if Run ends, the lock stays open
	}()
}

// take checks whether another owner handles the shutdown. Otherwise it requests enough delay, and
// then the lock. Last, it checks whether a shutdown had started before.
func (a *attempt) take(ctx context.Context, options Options, inProgress bool) {
	inhibitor := options.Inhibitor
	if inProgress {
		// logind grants no lock during a shutdown.
		if a.preparing, a.err = inhibitor.Preparing(ctx); a.preparing || a.err != nil {
			return
		}
	}
	if a.evidence, a.delegated = options.Delegated(ctx); a.delegated {
		if yielder, ok := inhibitor.(DelayYielder); ok {
			a.unyielding = yielder.YieldMaxDelay(ctx)
		}
		return
	}
	wanted := options.needed()
	raise, cancel := context.WithTimeout(ctx, armBound/2)
	defer cancel()
	a.granted, a.shortage = inhibitor.RaiseMaxDelay(raise, wanted)
	if a.err = ctx.Err(); a.err != nil {
		return
	}
	if a.shortage != nil && a.granted <= 0 {
		var err error
		a.granted, err = inhibitor.MaxDelay(ctx)
		a.none = err == nil && a.granted <= 0
	}
	if sourcer, ok := inhibitor.(DelaySourcer); ok {
		a.source, _ = sourcer.MaxDelaySource(ctx) // only for display
	}
	if a.shortage == nil && a.granted < wanted {
		a.shortage = errors.New("logind does not report why")
	}
	lock, err := inhibitor.Inhibit(ctx, why)
	switch {
	case errors.Is(err, ErrShutdownInProgress):
		a.refused = true
		a.readKind(ctx, inhibitor)
		return
	case err != nil:
		a.err = fmt.Errorf("take the shutdown lock: %w", err)
		return
	}
	a.lock = lock
	if a.preparing, a.err = inhibitor.Preparing(ctx); a.err != nil {
		a.err = fmt.Errorf("read shutdown state from logind: %w", a.err)
	}
	if a.preparing {
		a.readKind(ctx, inhibitor)
	}
}

// readKind reads the kind of a shutdown whose announcement the guard missed.
func (a *attempt) readKind(ctx context.Context, inhibitor Inhibitor) {
	if source, ok := inhibitor.(KindSource); ok {
		a.kind, _ = source.PreparingKind(ctx) // only for display
	}
}

// onAttempt handles the result of an attempt.
func (g *Guard) onAttempt(a attempt) {
	g.arming.running = false
	if a.lock != nil {
		g.adopt(a.lock)
	}
	if g.arming.final { // the drain may still have to release this lock
		if g.status.State == Released {
			g.drop()
		}
		return
	}
	if a.granted > 0 || a.none {
		g.change(func(s *Status) {
			s.InhibitDelayMax, s.InhibitDelaySource = plan.Delay{Duration: a.granted}, a.source
		})
	}
	again := g.arming.again || a.announcements != g.arming.announcements
	g.arming.again = false
	if a.lock != nil && g.status.State == Released {
		// The drain ended before the attempt returned this lock.
		if again = again || a.preparing; again {
			g.drop()
		}
	}
	switch draining := g.status.State == Draining; {
	case !g.arming.subscribed:
		return // the next subscription starts another attempt
	case again:
		g.arm()
	case a.delegated && draining:
		g.cancel() // logind has forgotten the shutdown, as below; the next attempt checks the owner
	case a.delegated:
		g.delegate(a.evidence, a.unyielding)
	case a.err != nil:
		g.setTrouble(a.err)
		g.arming.retry.Reset(g.arming.retries.next(LongestPause))
	case a.refused && draining, a.preparing && draining:
		g.arming.retries.reset()
		g.askAgain()
	case a.refused && g.status.State == Released, a.preparing && g.status.State == Released:
		g.arming.retry.Reset(askInterval)
	case a.refused:
		g.begin(journal.TriggerShutdown, a.kind, shutdownOf(a.kind)+" was already in progress, so logind granted no lock")
	case a.preparing:
		g.begin(journal.TriggerShutdown, a.kind, shutdownOf(a.kind)+" was announced before the guard was ready")
	case draining:
		// logind has forgotten the shutdown.
		g.cancel()
	default:
		g.guardOn(a)
	}
}

// askAgain checks once a second, during a drain, whether the shutdown was cancelled. On systemd
// 257, `shutdown -c` cancels a delayed shutdown without a signal (seen on Debian 13,
// systemd#34684). Then the host does not shut down, even if the lock is released.
func (g *Guard) askAgain() {
	if g.episode != nil && !g.arming.final {
		g.arming.retry.Reset(askInterval)
	}
}

// guardOn enters Armed. The lock is held and no shutdown is in progress.
func (g *Guard) guardOn(a attempt) {
	switch g.status.State {
	case Released:
		g.set(Disarmed, "shutdown did not take place")
	case Delegated:
		g.set(Disarmed, "no other owner of shutdown found any more")
	}
	g.arming.retries.reset()
	g.clearTrouble()
	g.settle()
	reason, shortage := "shutdown lock held", ""
	if a.shortage != nil {
		shortage = a.shortage.Error()
		reason = fmt.Sprintf("shutdown lock held, but %v", a.shortage)
	}
	before := g.status
	g.status.InhibitDelayShortage = shortage
	g.set(Armed, reason)
	g.reportShortage(before)
	g.arming.retry.Reset(verifyInterval)
	g.options.Heartbeat(nil)
	if pods, ok := g.roster.Last(); ok {
		g.mark(pods)
	}
}

// settle ends the record of this boot's drain, if there is one, and starts the services that it
// stopped.
func (g *Guard) settle() {
	if g.options.Starter != nil { // without services to stop first, no runtime was stopped
		g.options.Starter.Release()
	}
	if r := g.options.Journal.Current(); r != nil && r.FinishedAt.IsZero() {
		g.log.Info("shutdown was cancelled while pods were being stopped", "started", r.StartedAt)
	}
	settled := g.options.Journal.Settle()
	g.reviver.revive(g.ctx)
	if settled {
		g.options.Settled()
	}
}

// reportShortage reports when an armed guard is granted less delay than it needs, and when the
// delay is enough again. A change of state is reported by the caller.
func (g *Guard) reportShortage(before Status) {
	now := g.Status()
	if now.InhibitDelayShortage == before.InhibitDelayShortage {
		return
	}
	if now.InhibitDelayShortage == "" {
		g.log.Info("shutdown delay covers all phases", "granted", now.InhibitDelayMax.Duration)
	} else {
		g.log.Warn("shutdown delay is shorter than the phases", "granted", now.InhibitDelayMax.Duration,
			"needed", now.InhibitDelayNeeded.Duration, "error", now.InhibitDelayShortage)
	}
	if before.State == Armed {
		g.notify.put(Change{From: Armed, To: Armed, Status: now})
	}
}

// needed is the delay that all phases need.
func (o Options) needed() time.Duration {
	if len(o.Phases) == 0 {
		return 0
	}
	return o.First.Bound() + plan.Total(o.Phases) + plan.Margin
}

// delegate enters Delegated, and yields to the other owner.
func (g *Guard) delegate(evidence string, unyielding error) {
	if unyielding != nil && g.status.State != Delegated {
		g.log.Warn("cannot leave logind drop-in to the shutdown's owner, its delay may be shortened", "owner", evidence, "error", unyielding)
	}
	g.drop()
	g.clearTrouble()
	released := g.status.State == Released
	if released {
		g.set(Disarmed, "shutdown did not take place")
	}
	if released || g.options.Journal.Current() == nil { // otherwise the shutdown may still be in progress
		g.settle()
	}
	g.options.Journal.Unmark()
	g.set(Delegated, evidence)
	g.arming.retry.Reset(recheckInterval)
}

// adopt replaces the lock. It closes the old one last, so that the guard always holds one.
func (g *Guard) adopt(lock io.Closer) {
	old := g.lock
	g.lock = &onceCloser{closer: lock}
	g.closeLock(old)
}

// drop releases the lock, and locks of an earlier process that no attempt has adopted.
func (g *Guard) drop() {
	old := g.lock
	g.lock = nil
	g.closeLock(old)
	if inheritor, ok := g.options.Inhibitor.(LockInheritor); ok {
		if err := inheritor.ReleaseAll(); err != nil {
			g.log.Warn("cannot release shutdown locks of an earlier process, shutdown may be delayed", "error", err)
		}
	}
}

func (g *Guard) closeLock(lock io.Closer) {
	if lock == nil {
		return
	}
	if err := lock.Close(); err != nil {
		g.log.Warn("cannot close shutdown lock cleanly", "error", err)
	}
}

// onceCloser closes only once. After that, another file may have the same descriptor number.
type onceCloser struct{ closer io.Closer }

func (c *onceCloser) Close() error {
	closer := c.closer
	c.closer = nil
	if closer == nil {
		return nil
	}
	return closer.Close()
}

// setTrouble records why the guard is not armed. It keeps the lock, which survives a restart of
// logind. A running drain continues.
func (g *Guard) setTrouble(err error) {
	began := g.arming.trouble == nil
	g.arming.trouble = err
	g.options.Heartbeat(err)
	switch g.status.State {
	case Armed, Disarmed:
		if began {
			g.log.Warn("host shutdown not protected, retrying", "error", err)
		}
		g.set(Disarmed, err.Error())
	}
}

// clearTrouble records that nothing prevents arming.
func (g *Guard) clearTrouble() {
	if g.arming.trouble != nil {
		g.log.Info("logind recovered")
	}
	g.arming.trouble = nil
}

// on handles an event of the login manager.
func (g *Guard) on(e Event) {
	switch e.Type {
	case Subscribed, Returned:
		g.arming.subscribed = true
		g.arming.retries.reset() // logind may need a moment until it is ready
		g.arm()
	case Lost:
		g.arming.subscribed = false
		g.setTrouble(ErrLoginManagerGone)
	case Altered:
		if s := g.status.State; s == Armed || s == Delegated {
			g.arm()
		}
	case Prepare:
		g.arming.announcements++
		g.prepare(e.Kind)
	case Cancel:
		g.arming.announcements++
		g.cancel()
	}
}
