package reboot

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown/journal"
)

// mostSteps bounds the number of steps in one round.
const mostSteps = 10

// round is the state that Run's goroutine owns.
type round struct {
	node    node
	drain   *work  // drain of the pods; nil before its start
	command *work  // reboot command; nil before its start
	settled string // ID of the last request that is completely finished
}

// work is a task in its own goroutine.
type work struct {
	cancel context.CancelFunc
	over   chan struct{} // closed when the task has ended
	err    error         // error of the task; valid after over is closed
}

// begin starts a task, and wakes the controller when it ends.
func (c *Controller) begin(ctx context.Context, do func(context.Context) error) *work {
	ctx, cancel := context.WithCancel(ctx)
	w := &work{cancel: cancel, over: make(chan struct{})}
	go func() {
		defer c.wake.Send()
		defer close(w.over)
		defer cancel()
		w.err = do(ctx)
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
		return Progress{}
	}
	if w.err != nil {
		return Progress{Failed: w.err.Error()}
	}
	return Progress{Done: true}
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
		c.round.drain, c.round.command = nil, nil
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
	for range mostSteps {
		r := c.wanted()
		c.round.node.follow(ctx, r.active())
		if r == nil || ctx.Err() != nil {
			return interval
		}
		if !r.active() {
			c.settle(ctx, *r)
			return interval
		}
		if r.Step == controlplane.RebootVerifying {
			c.undo(ctx, *r) // before the checks, which wait for its containers
		}
		f := c.facts(ctx, *r)
		d := Decide(*r, f, c.o.Policy())
		if c.take(ctx, *r, d); d.Step != r.Step || d.Failed {
			continue
		}
		c.act(ctx, *r, f)
		if wait := d.Next.Sub(f.Now); !d.Next.IsZero() && wait < interval {
			return max(wait, time.Second) // a changed clock must not cause a busy loop
		}
		return interval
	}
	return interval
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
	if tidied && c.announce(ctx, r) == "" {
		c.round.settled = r.ID
	}
}

// announce reads the Node, and writes the step there. It returns why the step is not there. That is empty if it
// is, or need not be.
func (c *Controller) announce(ctx context.Context, r Request) string {
	if !c.o.Host.HasNode() {
		return ""
	}
	n := &c.round.node
	n.read(ctx, c.o.Boot)
	if !c.o.Lock.OnNode() {
		return ""
	}
	why := n.announce(ctx, r.published(c.o.Host.EmptiedByServer()), c.o.Boot)
	if why != "" && n.err != nil {
		return n.err.Error()
	}
	return why
}

// wanted returns the current request. If none is active and a file or check requests a reboot, it is a new one.
func (c *Controller) wanted() *Request {
	wanted, undecided := c.o.Host.Wanted()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = found{wanted, undecided}
	r := c.memory.Request
	if wanted, _ = c.memory.unwaived(c.o.Boot, wanted); len(wanted) > 0 && !r.active() && (r == nil || r.tidied()) {
		c.memory.Request = c.request(Names(wanted), c.o.Now())
		c.requested("")
	}
	return c.memory.Request
}

// tidied reports whether an earlier attempt has left nothing to undo.
func (r *Request) tidied() bool { return r.Attempt.Drain.IsZero() && !r.Attempt.Locked }

// facts collects the facts for a decision.
func (c *Controller) facts(ctx context.Context, r Request) Facts {
	n, host := &c.round.node, c.o.Host
	f := Facts{
		Now: c.o.Now(), Boot: c.o.Boot, Drain: c.round.drain.progress(), Command: c.round.command.progress(),
		GoingDown: host.GoingDown(), NotStarted: host.NotStarted(),
	}
	f.Unannounced = c.announce(ctx, r)
	f.OtherGroup = c.otherGroup()
	if host.HasNode() {
		if f.NotReady = n.notReady(c.o.Boot); f.NotReady == "" {
			f.ReadyFor = time.Since(n.ready)
		}
	} else {
		f.ReadyFor = mostTook
	}
	if !r.Now || host.EmptiedByServer() {
		f.Turn = c.turn(ctx, r)
	}
	if host.EmptiedByServer() {
		f.Drain.Done = f.Turn.Emptied
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !f.Turn.Unanswered:
		c.unanswered = time.Time{}
	case c.unanswered.IsZero():
		c.unanswered = time.Now()
	}
	f.Longest = c.memory.longest()
	f.Wanted, _ = c.memory.unwaived(c.o.Boot, c.found.wanted)
	f.Undecided = c.found.undecided
	return f
}

// otherGroup returns an error text if the Node is not in the group of the host: the host would get a slot of another
// group. Beside a kubelet, only a person sets the label.
func (c *Controller) otherGroup() string {
	n := c.round.node.stored
	if c.o.Group == "" || n == nil {
		return ""
	}
	group := cmp.Or(n.Labels[controlplane.LabelRebootGroup], controlplane.DefaultRebootGroup)
	if group == c.o.Group {
		return ""
	}
	why := fmt.Sprintf("the Node is in group %s, and `reboot.group` is %s", group, c.o.Group)
	if c.o.Host.EmptiedByServer() {
		why += fmt.Sprintf(": run `kubectl label --overwrite node %s %s=%s`", c.o.Node, controlplane.LabelRebootGroup, c.o.Group)
	}
	return why
}

// turn requests the lock. Before that, it writes to the disk that the lock may be held.
func (c *Controller) turn(ctx context.Context, r Request) Turn {
	if r.Step == controlplane.RebootWanted {
		return Turn{}
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if r.Step == controlplane.RebootWaiting && !r.Attempt.Locked {
		r = c.edit(func(r *Request) { r.Attempt.Locked = true })
		c.onDisk(ctx)
	}
	return c.o.Lock.Turn(ctx, &r, c.round.node.stored)
}

// take carries out a decision about the step. The step is on disk when it returns.
func (c *Controller) take(ctx context.Context, before Request, d Decision) {
	now := c.o.Now()
	c.edit(func(r *Request) {
		r.Message = d.Message
		if d.Step == before.Step && !d.Failed {
			return
		}
		r.Step, r.Since, r.ByOther = d.Step, now, r.ByOther || d.ByOther
		switch {
		case d.Failed:
			r.Attempt = Attempt{Failed: r.Attempt.Failed + 1, Failure: d.Message, RetryAt: d.Next, Drain: r.Attempt.Drain, Locked: r.Attempt.Locked}
		case d.Step == controlplane.RebootGranted:
			r.Attempt.Granted = now
		case d.Step == controlplane.RebootVerifying:
			r.Attempt.Down = before.Since
		case d.Step == controlplane.RebootDone && before.Boot != c.o.Boot:
			before.ByOther = r.ByOther
			c.memory.over(before, now)
		}
	})
	if d.Step == before.Step && !d.Failed {
		return
	}
	if d.Step == controlplane.RebootWanted || d.Step == controlplane.RebootDone {
		c.tidy(ctx)
	}
	c.onDisk(ctx)
	c.announceStep(before, d)
}

// announceStep logs a step, and publishes an Event if the step matters to others.
func (c *Controller) announceStep(before Request, d Decision) {
	if d.Failed {
		c.log.Warn("reboot failed, retrying later", "step", before.Step, "reason", d.Message, "at", d.Next)
		c.o.Announce(corev1.EventTypeWarning, "RebootFailed", fmt.Sprintf("failed at step %s: %s; tries again at %s", before.Step, d.Message, d.Next.UTC().Format(time.RFC3339)))
		return
	}
	c.log.Info("reboot", "step", d.Step, "message", d.Message, "reason", before.Reason)
	message := before.Reason
	if d.Message != "" {
		message += ": " + d.Message
	}
	switch d.Step {
	case controlplane.RebootDraining:
		c.o.Announce(corev1.EventTypeNormal, "RebootStarted", message)
	case controlplane.RebootDone:
		c.o.Announce(corev1.EventTypeNormal, "RebootFinished", message)
	}
}

// act does the work of the current step.
func (c *Controller) act(ctx context.Context, r Request, f Facts) {
	if r.Step == controlplane.RebootWanted && !r.tidied() { // retry a release that failed
		c.tidy(ctx)
	}
	if f.Unannounced != "" && !r.Now && r.Step != controlplane.RebootVerifying {
		return
	}
	switch r.Step {
	case controlplane.RebootDraining:
		if c.round.drain == nil && !c.o.Host.EmptiedByServer() {
			c.round.drain = c.begin(ctx, func(ctx context.Context) error { return c.drain(ctx, r) })
		}
	case controlplane.RebootRebooting:
		if c.round.command == nil && !f.GoingDown {
			c.round.command = c.begin(ctx, c.o.Host.Reboot)
		}
	}
}

// drain cordons the Node and stops its pods.
func (c *Controller) drain(ctx context.Context, r Request) error {
	cordoning, cancel := context.WithTimeout(ctx, callTime)
	err := c.o.Host.Cordon(cordoning)
	cancel()
	if err != nil {
		return fmt.Errorf("cordon: %w", err)
	}
	record, err := c.o.Host.Drain(ctx, "reboot: "+r.Reason, r.Attempt.Drain, func(at time.Time) {
		c.edit(func(r *Request) {
			if r.Attempt.Drain.IsZero() {
				r.Attempt.Drain = at.UTC().Round(0)
			}
		})
		c.onDisk(ctx) // after a power cut, the next boot must know which pods to start
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
	c.edit(func(r *Request) { r.Attempt.Drain = time.Time{} })
}

// tidy undoes an attempt: it starts the pods again, uncordons the Node and gives the lock back.
func (c *Controller) tidy(ctx context.Context) {
	c.round.drain.end()
	c.round.drain, c.round.command = nil, nil
	r := c.edit(func(*Request) {}) // read the request again: the drain may have set its start
	c.undo(ctx, r)
	calling, cancel := context.WithTimeout(ctx, 2*callTime)
	defer cancel()
	if err := c.o.Host.Uncordon(calling); err != nil {
		c.log.Warn("cannot uncordon the Node yet", "error", err)
	}
	if !r.Attempt.Locked {
		return
	}
	if err := c.o.Lock.Release(calling, &r); err != nil {
		c.log.Warn("cannot give the reboot slot back, retrying", "error", err)
		return
	}
	c.edit(func(r *Request) { r.Attempt.Locked = false })
}
