package reboot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/internal/sanitize"
)

// pendingTime bounds the question to systemd whether the host is about to shut down.
const pendingTime = 3 * time.Second

// Ask is a person's request for a reboot.
type Ask struct {
	Reason string `json:"reason"` // with Now, empty for the reason of the request that waits
	Now    bool   `json:"now"`    // reboot without a slot and outside of windows
}

// Request requests a reboot for a person. If a reboot already waits, the new reason replaces the old one. A
// request that cannot be stored is refused. The report names in Held what a request with Now overrides.
func (c *Controller) Request(who string, a Ask) (Report, error) {
	a.Reason = sanitize.Text(strings.TrimSpace(a.Reason), mostReason)
	held := c.o.Host.Held()
	for {
		c.mu.Lock()
		before := c.memory.Request
		next, err := c.asked(who, a)
		report := c.report()
		c.mu.Unlock()
		if err != nil {
			return report, err
		}
		_, err = c.commit(context.Background(), before, func(m *Memory) { m.Request, m.Waived, m.WaivedBoot = next, nil, "" })
		switch {
		case errors.Is(err, errChanged):
			continue
		case err != nil:
			return report, &hint.Error{
				Message: fmt.Sprintf("cannot store the request: %v", err),
				Hint:    "`hostler doctor` shows the fault of the state directory; `systemctl reboot` reboots at once, and stops the pods in order",
			}
		}
		c.requested(next)
		c.wake.Send()
		report = c.Report()
		report.Held = held
		return report, nil
	}
}

// asked returns the request that a person's request leads to. The caller holds mu.
func (c *Controller) asked(who string, a Ask) (*Request, error) {
	r, now := c.memory.Request, c.o.Now()
	over := !r.active() || r.Boot != c.o.Boot && !r.running() // a boot ends a request that waits, also before a round has noticed
	waits := !over && !r.running()
	if a.Reason == "" && a.Now && waits {
		a.Reason = r.Reason
	}
	var next Request
	switch {
	case a.Reason == "" && (waits || over):
		return nil, &hint.Error{Message: "the reason of the reboot is missing", Hint: "say why the host is to reboot: --reason TEXT", Status: http.StatusBadRequest}
	case over:
		next = *c.request(a.Reason, now)
		if r != nil { // not undone yet
			next.Attempt = Attempt{Drain: r.Attempt.Drain, Locked: r.Attempt.Locked, Lock: r.Attempt.Lock}
		}
	case r.running():
		return nil, &hint.Error{Message: fmt.Sprintf("the host is already at step %s of a reboot", r.Step), Hint: "`hostler status` shows how far it is"}
	default:
		next = *r
		next.Reason, next.Cancelled, next.Attempt.RetryAt = a.Reason, "", time.Time{}
	}
	next.By, next.Now = who, a.Now
	return &next, nil
}

// request returns a new request.
func (c *Controller) request(reason string, now time.Time) *Request {
	return &Request{ID: rand.Text(), Step: controlplane.RebootWanted, Since: now, Wanted: now, Reason: reason, Boot: c.o.Boot}
}

// requested logs a new request, and publishes an Event.
func (c *Controller) requested(r *Request) {
	c.log.Info("reboot requested", "by", r.By, "reason", r.Reason, "now", r.Now)
	c.o.Announce(corev1.EventTypeNormal, "RebootRequested", r.Reason)
}

// Cancel cancels the reboot for a person. The files and checks that request it now, or whose result is not known
// yet, are ignored until the next boot. A cancellation is effective even if it cannot be stored.
func (c *Controller) Cancel(who string) (Report, error) {
	for {
		c.mu.Lock()
		before, command, found, report := c.memory.Request, c.command, c.found, c.report()
		c.mu.Unlock()
		if err := c.mayCancel(before, command); err != nil {
			return report, err
		}
		if !c.cancel(before, command, who, found) {
			continue
		}
		c.log.Info("reboot cancelled", "by", who, "step", before.Step)
		c.wake.Send()
		_ = c.flush(context.Background()) // the report has the error
		return c.Report(), nil
	}
}

// cancel records that a person has cancelled a request. It reports false if the request or the progress of its
// command has changed since the decision.
func (c *Controller) cancel(before *Request, ran command, who string, f found) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory.Request != before || c.command != ran {
		return false
	}
	c.memory = c.memory.changed(func(m *Memory) {
		m.Request.Cancelled = who
		m.waive(c.o.Boot, f)
	})
	c.save()
	return true
}

// mayCancel refuses to cancel a reboot whose command runs or has already started a shutdown.
func (c *Controller) mayCancel(r *Request, ran command) error {
	switch {
	case r == nil && c.Unread():
		return &hint.Error{Message: "it is not known if there is a reboot to cancel: " + unreadMemory, Hint: unreadFix}
	case !r.active():
		return &hint.Error{Message: "no reboot is wanted", Hint: "`hostler reboot --dry-run` shows what would request one"}
	case r.Step != controlplane.RebootRebooting || r.Boot != c.o.Boot:
		return nil
	case ran == commandRuns:
		return &hint.Error{Message: "`reboot.command` is running: the reboot cannot be cancelled now", Hint: fmt.Sprintf("try again when it has returned, at most %v after its start", commandTime)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), pendingTime)
	defer cancel()
	pending, err := c.o.Host.ShutdownPending(ctx, time.Time{})
	switch {
	case c.o.Host.GoingDown():
		return &hint.Error{Message: "the host is already shutting down", Hint: "`hostler status` shows the shutdown"}
	case err != nil:
		return &hint.Error{Message: fmt.Sprintf("cannot check whether the shutdown has already started: %v", err), Hint: fmt.Sprintf("try again; if the host does not go down, the attempt ends by itself %v after the step began", downBound)}
	case pending != "":
		return &hint.Error{Message: "the reboot cannot be cancelled here any more: " + pending, Hint: "to cancel a scheduled shutdown, run `shutdown -c`, then try again"}
	}
	return nil
}
