package reboot

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
)

const (
	// firstPause is the pause after the first failed attempt. After each further failure it doubles, up to
	// longestPause.
	firstPause   = 5 * time.Minute
	longestPause = 4 * time.Hour
	// drainBound bounds the time until no pod runs any more.
	drainBound = 3 * time.Hour
	// downBound bounds the time between the start of step Rebooting and the shutdown.
	downBound = 15 * time.Minute
	// longHeld is how long the host may have its turn before it counts as a problem. Servers use the same
	// time for a slot.
	longHeld = time.Hour
	// longUnanswered is how long a request for a slot may stay without an answer.
	longUnanswered = 10 * time.Minute
	// mostDown is longer than any host takes to shut down and boot.
	mostDown = 45 * time.Minute
	// mostTook is longer than any reboot takes. A longer time means that the clock was set.
	mostTook = 24 * time.Hour
)

// Turn is the answer of the lock.
type Turn struct {
	Granted bool
	// Lost reports that the lock has answered that the host does not hold it.
	Lost    bool
	Message string // reason for no turn, or what the host still waits for
	// Unanswered reports that there is no answer to the request.
	Unanswered bool
	// Emptied and Failed are the result of a server that evicts the pods.
	Emptied, Failed bool
}

// Progress is the state of a background task of the current step.
type Progress struct {
	Running bool
	Done    bool
	Failed  string // error of the task; empty if it has not failed
}

// Facts are the input of a decision.
type Facts struct {
	Now  time.Time
	Boot string // the current boot ID
	// Wanted are the files and checks that request a reboot. Undecided are those whose result is not
	// known.
	Wanted, Undecided []Finding
	// Unannounced says why the current step is not written on the Node; empty if it is, or need not be.
	Unannounced string
	OtherGroup  string // error text if the Node is in another reboot group; empty if not
	// Gone says why the host has no Node of its own any more; empty if it has one, or needs none. Its slot is
	// then given to others.
	Gone string
	// OtherLock says that the attempt has the lock of an earlier configuration; empty if not. Owed says that
	// this lock must still be given back.
	OtherLock, Owed string
	// Held are the reasons why a reboot now would harm.
	Held []Finding
	// Disabled reports that hostler must not reboot the host any more.
	Disabled bool
	Turn     Turn
	Longest  time.Duration // duration of the longest past reboot
	Drain    Progress      // progress of the host's own drain
	// Last is the progress of the drain of the pods that the first one has left, right before the command, and
	// LastTook its duration so far.
	Last      Progress
	LastTook  time.Duration
	Command   Progress // progress of the reboot command; Done after it has run
	GoingDown bool
	ReadyFor  time.Duration // time since the Node became Ready
	NotReady  string        // why the Node is not Ready; empty if it is
	// NotStarted are the containers that should be running again, and are not.
	NotStarted []string
	// Unknown says why it is not known which containers these are; empty if it is.
	Unknown string
}

// Decision is the next step of a request.
type Decision struct {
	Step    controlplane.RebootStep
	Message string // what the request waits for, or why the attempt failed
	Failed  bool   // the attempt failed: undo it, and retry later
	ByOther bool   // something else has rebooted the host
	// Next is when the decision may change although the facts do not; zero if never.
	Next time.Time
}

// Decide returns the next step of a reboot, which may be the current one.
func Decide(r Request, f Facts, p Policy) Decision {
	if d, rebooted := returned(r, f.Boot); rebooted {
		return d
	}
	switch r.Step {
	case controlplane.RebootWanted, controlplane.RebootWaiting, controlplane.RebootGranted:
		return beforeDrain(r, f, p)
	case controlplane.RebootDraining:
		return draining(r, f)
	case controlplane.RebootRebooting:
		return withRelease(r, f, rebooting(r, f))
	case controlplane.RebootVerifying:
		return withRelease(r, f, verifying(r, f, p))
	}
	return Decision{Step: r.Step}
}

// withRelease adds to the message of a step that a person has released the slot: other hosts may reboot meanwhile.
func withRelease(r Request, f Facts, d Decision) Decision {
	if d.Step == r.Step && f.Turn.Lost && !f.Turn.Unanswered && f.Turn.Message != "" {
		d.Message += "; " + f.Turn.Message
	}
	return d
}

// returned decides if the host has booted since the request.
func returned(r Request, boot string) (Decision, bool) {
	switch {
	case r.Boot == boot || r.Step == controlplane.RebootVerifying || r.Step == controlplane.RebootDone:
		return Decision{}, false
	case !r.running():
		return Decision{Step: controlplane.RebootDone, ByOther: true, Message: "the host was rebooted by something else than hostler"}, true
	}
	return Decision{Step: controlplane.RebootVerifying, ByOther: r.Step != controlplane.RebootRebooting}, true
}

func beforeDrain(r Request, f Facts, p Policy) Decision {
	if r.Cancelled != "" {
		return Decision{Step: controlplane.RebootDone, Message: "cancelled by " + r.Cancelled}
	}
	if f.Disabled {
		return Decision{Step: controlplane.RebootDone, Message: disabled}
	}
	if f.OtherLock != "" {
		return Decision{Step: controlplane.RebootWanted, Message: f.OtherLock}
	}
	// What is not known yet costs nobody its place in the queue, or its slot.
	decided := func(f Finding) bool { return !f.Pending }
	if pending := without(f.Undecided, decided); len(pending) > 0 && !r.Now {
		return Decision{Step: r.Step, Message: unknowns(pending)}
	}
	if r.By == "" && len(f.Wanted) == 0 && len(f.Undecided) == 0 {
		return Decision{Step: controlplane.RebootDone, Message: "no file or check wants a reboot any more"}
	}
	if d := held(r, f, p); d.Message != "" {
		return d
	}
	if pending := without(f.Held, decided); len(pending) > 0 && !r.Now {
		return Decision{Step: r.Step, Message: Names(pending)}
	}
	switch {
	case r.Step == controlplane.RebootWanted && !r.Now:
		return Decision{Step: controlplane.RebootWaiting, Message: "requesting a slot"}
	case r.Step != controlplane.RebootGranted && (r.Now || f.Turn.Granted):
		return Decision{Step: controlplane.RebootGranted}
	case r.Step != controlplane.RebootGranted:
		return Decision{Step: r.Step, Message: cmp.Or(f.Unannounced, f.Turn.Message)}
	case !r.Now && f.Turn.Lost && since(r, f) >= interval: // a control plane must not set the pace of steps
		return Decision{Step: controlplane.RebootWaiting, Message: f.Turn.Message}
	}
	if why := unconfirmed(r, f); why != "" {
		return Decision{Step: r.Step, Message: why}
	}
	return Decision{Step: controlplane.RebootDraining}
}

// disabled is why a reboot ends after a change of the configuration.
const disabled = "`reboot.enabled` is false"

// unconfirmed says why it is not certain now that the host has its turn, so that the next step, which cannot be
// undone, must wait; empty if it is certain, or need not be.
func unconfirmed(r Request, f Facts) string {
	switch {
	case r.Now:
		return ""
	case f.Unannounced != "":
		return f.Unannounced
	case !f.Turn.Granted:
		return cmp.Or(f.Turn.Message, "the lock has not confirmed the slot")
	}
	return ""
}

// ended says why an attempt ends before its last step; empty if it goes on.
func ended(r Request, f Facts) string {
	switch {
	case f.OtherLock != "":
		return f.OtherLock
	case r.Now:
		return ""
	case f.Gone != "":
		return f.Gone
	case f.Turn.Lost:
		return cmp.Or(f.Turn.Message, "the slot was released")
	}
	return ""
}

// held decides to wait if the reboot may not begin now. Its Message is empty if the reboot may begin.
func held(r Request, f Facts, p Policy) Decision {
	wait := func(next time.Time, format string, args ...any) Decision {
		return Decision{Step: controlplane.RebootWanted, Message: fmt.Sprintf(format, args...), Next: next}
	}
	// If more than the pause is left, the clock was set back since: ignore the pause.
	if left := r.Attempt.RetryAt.Sub(f.Now); left > 0 && left <= pause(r.Attempt.Failed) {
		return wait(r.Attempt.RetryAt, "%s; the next attempt is at %s", r.Attempt.Failure, clock(r.Attempt.RetryAt))
	}
	known := without(f.Held, func(f Finding) bool { return f.Pending })
	switch {
	case r.Now:
		return Decision{}
	case f.Owed != "" && since(r, f) < longHeld:
		return wait(r.Since.Add(longHeld), "%s", f.Owed)
	case len(f.Undecided) > 0:
		return wait(time.Time{}, "%s", unknowns(f.Undecided))
	case f.Gone != "":
		return wait(time.Time{}, "%s", f.Gone)
	case len(known) > 0:
		return wait(time.Time{}, "%s", Names(known))
	case f.OtherGroup != "":
		return wait(time.Time{}, "%s", f.OtherGroup)
	}
	switch why, next := p.closed(f.Now, f.Longest); {
	case why != "":
		return wait(next, "%s", why)
	case r.Step == controlplane.RebootWanted && r.Since.After(r.Wanted) && since(r, f) < interval: // as for a slot that is lost
		return wait(r.Since.Add(interval), "%s", r.Message)
	}
	return Decision{}
}

func draining(r Request, f Facts) Decision {
	why := ended(r, f)
	switch late := since(r, f) >= drainBound; {
	case r.Cancelled != "":
		return Decision{Step: controlplane.RebootDone, Message: "cancelled by " + r.Cancelled}
	case f.Disabled:
		return Decision{Step: controlplane.RebootDone, Message: disabled}
	case why != "":
		return failed(r, f, why)
	case f.Turn.Failed:
		return failed(r, f, f.Turn.Message)
	case f.Drain.Failed != "":
		return failed(r, f, "the drain failed: "+f.Drain.Failed)
	case f.Drain.Done && unconfirmed(r, f) == "":
		return Decision{Step: controlplane.RebootRebooting}
	case late && f.Drain.Done:
		return failed(r, f, fmt.Sprintf("no answer %v after the drain began: %s", drainBound, unconfirmed(r, f)))
	case late:
		return failed(r, f, fmt.Sprintf("pods still run after %v: %s", drainBound, f.Turn.Message))
	}
	return Decision{Step: r.Step, Message: cmp.Or(unconfirmed(r, f), f.Turn.Message), Next: r.Since.Add(drainBound)}
}

func rebooting(r Request, f Facts) Decision {
	why, started := ended(r, f), f.Command.Running || f.Command.Done
	ends := r.Since.Add(downBound + f.LastTook)
	late := since(r, f) >= downBound+f.LastTook
	switch {
	case f.GoingDown:
		return Decision{Step: r.Step, Message: "the host is shutting down"}
	case f.Command.Failed != "":
		return failed(r, f, "the reboot failed: "+f.Command.Failed)
	case r.Cancelled != "" && !f.Command.Running:
		return Decision{Step: controlplane.RebootDone, Message: "cancelled by " + r.Cancelled}
	case f.Disabled && !started:
		return Decision{Step: controlplane.RebootDone, Message: disabled}
	case why != "" && !started:
		return failed(r, f, why)
	case started && late:
		return failed(r, f, fmt.Sprintf("the host does not go down, %v after the reboot was to begin", downBound))
	case f.Command.Done:
		return Decision{Step: r.Step, Message: "`reboot.command` has returned; if the host does not go down, the attempt ends at " + clock(ends), Next: ends}
	case !started && !f.Last.Done:
		return stopping(r, f)
	}
	return Decision{Step: r.Step, Message: "running `reboot.command`", Next: ends}
}

// stopping decides while critical pods are being stopped, or wait for that, right before the command. Once the first
// of them is stopped, nothing is left to be confirmed.
func stopping(r Request, f Facts) Decision {
	switch waits := unconfirmed(r, f); {
	case f.Last.Failed != "":
		return failed(r, f, "the drain of critical pods failed: "+f.Last.Failed)
	case f.LastTook >= drainBound:
		return failed(r, f, fmt.Sprintf("critical pods still run after %v", drainBound))
	case f.Last.Running || waits == "":
		return Decision{Step: r.Step, Message: "stopping critical pods"}
	case since(r, f) >= downBound:
		return failed(r, f, waits)
	default:
		return Decision{Step: r.Step, Message: waits, Next: r.Since.Add(downBound)}
	}
}

func verifying(r Request, f Facts, p Policy) Decision {
	stay := func(format string, args ...any) Decision {
		return Decision{Step: r.Step, Message: fmt.Sprintf(format, args...)}
	}
	still := without(f.Wanted, func(w Finding) bool { return w.New })
	switch {
	case r.Cancelled != "":
		return Decision{Step: controlplane.RebootDone, Message: "the checks after the reboot were ended by " + r.Cancelled}
	case f.Disabled:
		return Decision{Step: controlplane.RebootDone, Message: disabled}
	case f.GoingDown:
		return stay("the host is shutting down again")
	case f.Unknown != "":
		return stay("%s", f.Unknown)
	case len(f.NotStarted) > 0:
		return stay("containers that ran before the reboot do not run yet: %s", strings.Join(f.NotStarted, ", "))
	case len(still) > 0:
		return stay("a reboot is still wanted after the reboot: %s", Names(still))
	case len(f.Undecided) > 0:
		return stay("%s", unknowns(f.Undecided))
	case f.NotReady != "":
		return stay("%s", f.NotReady)
	case f.ReadyFor < p.ReadyFor:
		return Decision{Step: r.Step, Message: fmt.Sprintf("until the Node was Ready for %v without a break", p.ReadyFor), Next: f.Now.Add(p.ReadyFor - f.ReadyFor)}
	case f.Unannounced != "":
		return stay("%s", f.Unannounced)
	case r.ByOther:
		return Decision{Step: controlplane.RebootDone, Message: "the host went down before `reboot.command` was run"}
	}
	return Decision{Step: controlplane.RebootDone}
}

// problem says why a person should check a reboot; empty if it makes progress, or waits for its turn.
// unanswered is the time without an answer to the request for a slot.
func problem(r Request, now time.Time, unanswered time.Duration) string {
	why := ""
	switch {
	case r.running() && !r.Attempt.Granted.IsZero() && r.took(now) >= longHeld:
		why = fmt.Sprintf("it takes longer than %v, and is at step %s", longHeld, r.Step)
	case r.Step == controlplane.RebootDone && r.Attempt.Locked && now.Sub(r.Since) >= longUnanswered:
		return "it is over, and the lock server does not take the slot back"
	case r.Step == controlplane.RebootDone:
		return ""
	case r.Attempt.Failed > 1:
		return fmt.Sprintf("%d attempts failed, the last one: %s", r.Attempt.Failed, r.Attempt.Failure)
	case r.Step == controlplane.RebootWaiting && unanswered >= longUnanswered:
		why = "no answer to the request for a slot"
	default:
		return ""
	}
	if r.Message != "" {
		why += ": " + r.Message
	}
	return why
}

// failed returns to the beginning.
func failed(r Request, f Facts, why string) Decision {
	return Decision{Step: controlplane.RebootWanted, Failed: true, Message: why, Next: f.Now.Add(pause(r.Attempt.Failed + 1))}
}

// pause is the pause after this number of failed attempts.
func pause(attempts int) time.Duration {
	return min(firstPause<<min(max(attempts-1, 0), 10), longestPause)
}

// since is the duration of the current step so far; zero if the clock was set back.
func since(r Request, f Facts) time.Duration { return max(0, f.Now.Sub(r.Since)) }
