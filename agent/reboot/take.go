package reboot

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// take carries out a decision about the request before. It returns the request to act on, at the same step; nil
// if something has changed, so that it must be decided again. A step that begins something is on the disk when it
// becomes effective: one that cannot be stored is not started.
func (c *Controller) take(ctx context.Context, before *Request, d Decision) *Request {
	if d.Step == before.Step && !d.Failed {
		return c.say(before, d.Message)
	}
	now := c.o.Now()
	change := func(m *Memory) { c.apply(m, *before, d, now) }
	if d.Step == controlplane.RebootWaiting && c.formerly(before.Attempt) {
		c.log.Warn("gave up returning the slot of an earlier configuration: release it there", "lock", before.Attempt.Lock.String())
	}
	if d.begins(*before) {
		_, err := c.commit(ctx, before, change)
		switch why := fmt.Sprintf("cannot store step %s: %v", d.Step, err); {
		case err == nil:
			c.announceStep(*before, d)
			return nil
		case errors.Is(err, errChanged), ctx.Err() != nil:
			return nil
		case !before.Step.NeedsSlot(), before.Step == controlplane.RebootVerifying:
			return c.say(before, why)
		default: // others may have the slot meanwhile
			d = failed(*before, Facts{Now: now}, why)
		}
	}
	if _, err := c.replace(before, change); err != nil {
		return nil
	}
	c.announceStep(*before, d)
	if d.Step == controlplane.RebootWanted || d.Step == controlplane.RebootDone {
		c.tidy(ctx)
	}
	_ = c.flush(ctx) // the report has the error
	return nil
}

// begins reports whether a decision about a request begins something, so that it must be stored before.
func (d Decision) begins(r Request) bool {
	switch d.Step {
	case controlplane.RebootWaiting:
		return r.Step == controlplane.RebootWanted
	case controlplane.RebootGranted, controlplane.RebootDraining, controlplane.RebootRebooting:
		return true
	case controlplane.RebootDone: // the next host may then make the same mistake
		return r.Step == controlplane.RebootVerifying && r.Cancelled == ""
	}
	return false
}

// apply changes the memory as decided for the request before.
func (c *Controller) apply(m *Memory, before Request, d Decision, now time.Time) {
	r := m.Request
	r.Message, r.Step, r.Since, r.ByOther = d.Message, d.Step, now, r.ByOther || d.ByOther
	switch {
	case d.Failed:
		a := r.Attempt
		r.Attempt = Attempt{Failed: a.Failed + 1, Failure: d.Message, RetryAt: d.Next, Drain: a.Drain, Locked: a.Locked, Lock: a.Lock}
	case d.Step == controlplane.RebootWaiting:
		r.Attempt.Locked, r.Attempt.Lock = true, c.o.Change.ID
	case d.Step == controlplane.RebootGranted:
		r.Attempt.Granted = now
	case d.Step == controlplane.RebootVerifying:
		r.Attempt.Down = before.Since
	case d.Step == controlplane.RebootDone && before.Boot != c.o.Boot:
		before.ByOther = r.ByOther
		m.over(before, now)
	}
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
