package reboot

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown/journal"
)

// mostSteps bounds the number of steps in one round.
const mostSteps = 10

// round is the state that Run's goroutine owns.
type round struct {
	node    node
	drain   *work  // drain of the pods; nil before its start
	last    *work  // drain of the critical pods, right before the command; nil before its start
	command *work  // reboot command; nil before its start
	settled string // ID of the last request that is completely finished
	tidied  bool   // the Node is not cordoned any more because of an earlier attempt, also of an earlier process
}

// work is a task in its own goroutine.
type work struct {
	cancel context.CancelFunc
	over   chan struct{} // closed when the task has ended
	err    error         // error of the task; valid after over is closed
	began  time.Time     // by the monotonic clock
	ended  time.Time     // by the monotonic clock; valid after over is closed
}

// begin starts a task, and wakes the controller when it ends.
func (c *Controller) begin(ctx context.Context, do func(context.Context) error) *work {
	ctx, cancel := context.WithCancel(ctx)
	w := &work{cancel: cancel, began: time.Now(), over: make(chan struct{})}
	go func() {
		defer c.wake.Send()
		defer close(w.over)
		defer cancel()
		w.err = do(ctx)
		w.ended = time.Now()
	}()
	return w
}

// progress returns the state of a task. A nil work was not started.
func (w *work) progress() Progress {
	if w == nil {
		return Progress{}
	}
	select {
	case <-w.over:
	default:
		return Progress{Running: true}
	}
	if w.err != nil {
		return Progress{Failed: w.err.Error()}
	}
	return Progress{Done: true}
}

// took returns the duration of a task so far.
func (w *work) took() time.Duration {
	if w == nil {
		return 0
	}
	select {
	case <-w.over:
		return w.ended.Sub(w.began)
	default:
		return time.Since(w.began)
	}
}

// end cancels a task, and waits for its end, at most for endBound.
func (w *work) end() {
	if w == nil {
		return
	}
	w.cancel()
	select {
	case <-w.over:
	case <-time.After(endBound):
	}
}

// Run carries out reboots until ctx ends, and returns the cause of that.
func (c *Controller) Run(ctx context.Context) error {
	defer func() {
		c.round.node.follow(ctx, false)
		c.round.drain.end() // the next process continues the drain
		c.round.last.end()
		c.round.drain, c.round.last, c.round.command = nil, nil, nil
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := c.once(ctx)
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-c.wake:
		case stored := <-c.round.node.seen:
			c.round.node.take(stored, c.o.Boot)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// once carries out all steps that are due, and returns the time until the next round.
func (c *Controller) once(ctx context.Context) time.Duration {
	if c.reread(ctx) {
		return interval
	}
	for range mostSteps {
		r := c.wanted()
		c.round.node.follow(ctx, r.active())
		if ctx.Err() != nil {
			return interval
		}
		if !r.active() {
			c.withdraw(ctx, r)
		}
		if r == nil {
			return interval
		}
		if !r.active() {
			c.settle(ctx, *r)
			return interval
		}
		// The Node must not say again what was true before the boot: a server would empty it.
		if d, rebooted := returned(*r, c.o.Boot); rebooted {
			c.take(ctx, r, d)
			continue
		}
		if r.Step == controlplane.RebootVerifying {
			c.undo(ctx, *r) // before the checks, which wait for its containers
			r = c.current()
		}
		f := c.facts(ctx, *r)
		d := Decide(*r, f, c.o.Policy())
		if r = c.take(ctx, r, d); r == nil {
			continue
		}
		c.act(ctx, r, f)
		if wait := d.Next.Sub(f.Now); !d.Next.IsZero() && wait < interval {
			return max(wait, time.Second) // a changed clock must not cause a busy loop
		}
		return interval
	}
	return interval
}

// current returns the current request.
func (c *Controller) current() *Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory.Request
}

// settle cleans up after a reboot that is over, and writes on the Node that it is over. After success, it does
// nothing.
func (c *Controller) settle(ctx context.Context, r Request) {
	if c.round.settled == r.ID {
		return
	}
	c.tidy(ctx)
	c.mu.Lock()
	tidied := c.memory.Request.tidied()
	c.mu.Unlock()
	if tidied && c.round.tidied && c.announce(ctx, r) == "" {
		c.round.settled = r.ID
	}
}

// wanted returns the current request. If none is active and a file or check requests a reboot, it is a new one.
func (c *Controller) wanted() *Request {
	wanted, undecided := c.o.Host.Wanted()
	r, isNew := c.find(wanted, undecided)
	if isNew {
		c.requested(r)
	}
	return r
}

// find records what files and checks request. It returns the current request, and whether it is new.
func (c *Controller) find(wanted, undecided []Finding) (r *Request, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found.wanted, c.found.undecided = wanted, undecided
	// A person may have cancelled before they were known.
	if (c.memory.waives(c.o.Boot, all) || c.memory.waives(c.o.Boot, allChecks)) && c.memory.waiveAlso(c.found) {
		c.save()
	}
	r = c.memory.Request
	if now := c.o.Now(); r.active() && r.Boot == c.o.Boot && r.Since.After(now) { // the clock was set back
		later := *r
		later.Since = now
		r, c.memory.Request = &later, &later
		c.save()
	}
	wanted, _ = c.memory.unwaived(c.o.Boot, wanted)
	if len(wanted) == 0 || r.active() || r != nil && !r.tidied() || c.o.Change.Disabled {
		return r, false
	}
	c.memory.Request = c.request(Names(wanted), c.o.Now())
	c.save()
	return c.memory.Request, true
}

// tidied reports whether an earlier attempt has left nothing to undo.
func (r *Request) tidied() bool { return r.Attempt.Drain.IsZero() && !r.Attempt.Locked }

// act does the work of the current step.
func (c *Controller) act(ctx context.Context, r *Request, f Facts) {
	if r.Step == controlplane.RebootWanted && !(r.tidied() && c.round.tidied) { // retry what failed
		c.tidy(ctx)
	}
	switch r.Step {
	case controlplane.RebootDraining:
		if c.round.drain == nil && !c.o.Host.EmptiedByServer() && unconfirmed(*r, f) == "" {
			c.round.drain = c.begin(ctx, func(ctx context.Context) error { return c.drain(ctx, *r) })
		}
	case controlplane.RebootRebooting:
		c.reboot(ctx, r, f)
	}
}

// reboot stops the critical pods, then runs the command. The slot is confirmed before the first of them is stopped:
// after that, the control plane may be out of reach because of a pod that it needs. The shutdown has nothing left to
// stop, so that logind's limit does not matter.
func (c *Controller) reboot(ctx context.Context, r *Request, f Facts) {
	switch {
	case f.GoingDown:
	case c.round.last == nil && unconfirmed(*r, f) == "":
		c.round.last = c.begin(ctx, func(ctx context.Context) error { return c.stopPods(ctx, *r, true) })
	case f.Last.Done && c.round.command == nil && c.claim(r):
		c.round.command = c.begin(ctx, func(ctx context.Context) error {
			defer c.setCommand(commandReturned)
			return c.run(ctx)
		})
	}
}

// run runs the command. If it fails, the host keeps its slot unless it is certain that no shutdown follows soon.
func (c *Controller) run(ctx context.Context) error {
	failure := c.o.Host.Reboot(ctx)
	if failure == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pendingTime)
	defer cancel()
	pending, err := c.o.Host.ShutdownPending(ctx, c.o.Now().Add(downBound))
	if err == nil && pending == "" {
		return failure
	}
	if err != nil {
		pending = "not known: " + err.Error()
	}
	c.log.Warn("`reboot.command` failed, and a shutdown may follow", "error", failure, "shutdown", pending)
	return nil
}

// command is the progress of `reboot.command` in this process.
type command int

const (
	commandIdle command = iota // not started
	commandRuns
	commandReturned
)

func (c *Controller) setCommand(now command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.command = now
}

// claim reports whether the command may start now: the request is the one from which that was decided. From then
// on, nobody can cancel it.
func (c *Controller) claim(r *Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory.Request != r {
		return false
	}
	c.command = commandRuns
	return true
}

// drain cordons the Node and stops its pods except critical ones.
func (c *Controller) drain(ctx context.Context, r Request) error {
	cordoning, cancel := context.WithTimeout(ctx, callTime)
	err := c.o.Host.Cordon(cordoning)
	cancel()
	if err != nil {
		return fmt.Errorf("cordon: %w", err)
	}
	return c.stopPods(ctx, r, false)
}

// stopPods stops all pods, or all but critical ones.
func (c *Controller) stopPods(ctx context.Context, r Request, all bool) error {
	record, err := c.o.Host.Drain(ctx, "reboot: "+r.Reason, r.Attempt.Drain, all, func(at time.Time) error {
		err := c.amend(ctx, func(r *Request) { // after a power cut, the next boot must know which pods to start
			if r.Attempt.Drain.IsZero() {
				r.Attempt.Drain = at.UTC().Round(0)
			}
		})
		if err != nil {
			return fmt.Errorf("cannot store the start of the drain: %w", err)
		}
		return nil
	})
	if err == nil && !record.Graceful {
		err = fmt.Errorf("%s", cmp.Or(record.Error, "pods still run: "+left(record)))
	}
	return err
}

// left names the pods that still run.
func left(r journal.Record) string {
	var names []string
	for _, p := range r.Pods {
		if p.Outcome == journal.Left {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	return strings.Join(names, ", ")
}

// undo starts the containers again that the drain has stopped.
func (c *Controller) undo(ctx context.Context, r Request) {
	if r.Attempt.Drain.IsZero() {
		return
	}
	if err := c.o.Host.Undo(ctx, r.Attempt.Drain); err != nil {
		return // the next round or process undoes it
	}
	c.edit(func(now *Request) {
		if now.Attempt.Drain.Equal(r.Attempt.Drain) {
			now.Attempt.Drain = time.Time{}
		}
	})
}

// tidy undoes an attempt: it starts the pods again, uncordons the Node and gives the lock back.
func (c *Controller) tidy(ctx context.Context) {
	c.round.drain.end()
	c.round.last.end()
	c.round.drain, c.round.last, c.round.command = nil, nil, nil
	c.setCommand(commandIdle)
	r := c.edit(func(*Request) {}) // read the request again: the drain may have set its start
	c.undo(ctx, r)
	calling, cancel := context.WithTimeout(ctx, 2*callTime)
	defer cancel()
	err := c.o.Host.Uncordon(calling)
	if c.round.tidied = err == nil; err != nil {
		c.log.Warn("cannot uncordon the Node yet", "error", err)
	}
	if !r.Attempt.Locked {
		return
	}
	lock, err := c.lock(r.Attempt)
	if err == nil {
		err = lock.Release(ctx, &r)
	}
	if err != nil {
		c.log.Warn("cannot give the reboot slot back, retrying", "lock", r.Attempt.Lock.String(), "error", err)
		return
	}
	c.edit(func(r *Request) { r.Attempt.Locked, r.Attempt.Lock = false, LockID{} })
}
