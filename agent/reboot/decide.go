package reboot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/calendar"
	"hostler.io/hostler/internal/few"
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

// Policy is the configuration of a decision.
type Policy struct {
	Windows  calendar.Windows
	ReadyFor time.Duration // time that the Node must be Ready after the reboot
}

// Finding is a file or a check, and its message.
type Finding struct {
	Source  string `json:"source"`
	Message string `json:"message"`
	// Hint is what to do about a check that cannot run or fails; absent if there is nothing to do.
	Hint string `json:"hint,omitempty"`
	// New reports that the file appeared after this boot.
	New bool `json:"new,omitempty"`
	// Pending reports that the check has not run since the agent started.
	Pending bool `json:"pending,omitempty"`
}

// String formats a finding for people.
func (f Finding) String() string {
	if f.Message == "" {
		return f.Source
	}
	return fmt.Sprintf("%s (%s)", f.Message, f.Source)
}

// undecided formats a finding whose result is not known.
func (f Finding) undecided() string {
	kind := "check"
	if strings.HasPrefix(f.Source, "/") {
		kind = "file"
	}
	return fmt.Sprintf("%s %s: %s", kind, f.Source, f.Message)
}

// mostNamed is how many findings a message names.
const mostNamed = 3

// Names names the first findings, and counts the others.
func Names(list []Finding) string { return names(list, Finding.String) }

// unknowns names the first findings whose result is not known, and counts the others.
func unknowns(list []Finding) string { return names(list, Finding.undecided) }

func names(list []Finding, format func(Finding) string) string {
	var texts []string
	for _, f := range list {
		texts = append(texts, format(f))
	}
	return few.Names(texts, mostNamed)
}

// without returns the findings for which drop is false.
func without(list []Finding, drop func(Finding) bool) []Finding {
	return slices.DeleteFunc(slices.Clone(list), drop)
}

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
	Done   bool
	Failed string // error of the task; empty if it has not failed
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
	Turn        Turn
	Longest     time.Duration // duration of the longest past reboot
	Drain       Progress      // progress of the host's own drain
	Command     Progress      // progress of the reboot command; Done after it has run
	GoingDown   bool
	ReadyFor    time.Duration // time since the Node became Ready
	NotReady    string        // why the Node is not Ready; empty if it is
	// NotStarted are the containers that should be running again, and are not.
	NotStarted []string
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
	if d, rebooted := returned(r, f); rebooted {
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
func returned(r Request, f Facts) (Decision, bool) {
	switch {
	case r.Boot == f.Boot || r.Step == controlplane.RebootVerifying || r.Step == controlplane.RebootDone:
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
	if pending := without(f.Undecided, func(u Finding) bool { return !u.Pending }); len(pending) > 0 && !r.Now {
		return Decision{Step: r.Step, Message: unknowns(pending)}
	}
	if r.By == "" && len(f.Wanted) == 0 && len(f.Undecided) == 0 {
		return Decision{Step: controlplane.RebootDone, Message: "no file or check wants a reboot any more"}
	}
	if d := held(r, f, p); d.Message != "" {
		return d
	}
	switch {
	case r.Step == controlplane.RebootWanted && !r.Now:
		return Decision{Step: controlplane.RebootWaiting, Message: "requesting a slot"}
	case r.Step != controlplane.RebootGranted && (r.Now || f.Turn.Granted):
		return Decision{Step: controlplane.RebootGranted}
	case r.Step != controlplane.RebootGranted:
		return Decision{Step: r.Step, Message: cmp.Or(f.Unannounced, f.Turn.Message)}
	case !r.Now && f.Turn.Lost:
		return Decision{Step: controlplane.RebootWaiting, Message: f.Turn.Message}
	case f.Unannounced != "" && !r.Now:
		return Decision{Step: r.Step, Message: f.Unannounced}
	}
	return Decision{Step: controlplane.RebootDraining}
}

// held decides to wait if the reboot may not begin now. Its Message is empty if the reboot may begin.
func held(r Request, f Facts, p Policy) Decision {
	wait := func(next time.Time, format string, args ...any) Decision {
		return Decision{Step: controlplane.RebootWanted, Message: fmt.Sprintf(format, args...), Next: next}
	}
	// If a pause ends too late for any pause, the clock was set back since: ignore the pause.
	if r.Attempt.RetryAt.After(f.Now) && r.Attempt.RetryAt.Sub(f.Now) <= longestPause {
		return wait(r.Attempt.RetryAt, "%s; the next attempt is at %s", r.Attempt.Failure, clock(r.Attempt.RetryAt))
	}
	switch {
	case r.Now:
		return Decision{}
	case len(f.Undecided) > 0:
		return wait(time.Time{}, "%s", unknowns(f.Undecided))
	case f.OtherGroup != "":
		return wait(time.Time{}, "%s", f.OtherGroup)
	}
	why, next := p.closed(f.Now, f.Longest)
	if why == "" {
		return Decision{}
	}
	return wait(next, "%s", why)
}

// closed says why a reboot of this duration may not begin now, and when it may; empty if it may begin now.
func (p Policy) closed(now time.Time, takes time.Duration) (why string, next time.Time) {
	if len(p.Windows) == 0 {
		return "", time.Time{}
	}
	start, _, found := p.Windows.Next(now, takes)
	until, open := p.Windows.Open(now)
	switch {
	case !found && takes > 0:
		return fmt.Sprintf("no window of `reboot.window` is as long as the longest of the last reboots, %v", takes), time.Time{}
	case !found:
		return "no window of `reboot.window` opens within the next years", time.Time{}
	case !start.After(now):
		return "", time.Time{}
	case open:
		return fmt.Sprintf("the window ends at %s, and the longest of the last reboots took %v; the next window opens at %s", clock(until), takes, clock(start)), start
	}
	return "the window opens at " + clock(start), start
}

// Window says whether a reboot of this duration may begin now, or when. It is empty if there are no windows.
func (p Policy) Window(now time.Time, takes time.Duration) string {
	if len(p.Windows) == 0 {
		return ""
	}
	if why, _ := p.closed(now, takes); why != "" {
		return why
	}
	until, _ := p.Windows.Open(now)
	if until.IsZero() {
		return "the window does not close within a year"
	}
	return "the window is open until " + clock(until)
}

func draining(r Request, f Facts) Decision {
	switch {
	case r.Cancelled != "":
		return Decision{Step: controlplane.RebootDone, Message: "cancelled by " + r.Cancelled}
	case !r.Now && f.Turn.Lost:
		return failed(r, f, "the slot was released: "+f.Turn.Message)
	case f.Unannounced != "" && !r.Now:
		return Decision{Step: r.Step, Message: f.Unannounced}
	case f.Turn.Failed:
		return failed(r, f, f.Turn.Message)
	case f.Drain.Failed != "":
		return failed(r, f, "the drain failed: "+f.Drain.Failed)
	case f.Drain.Done:
		return Decision{Step: controlplane.RebootRebooting}
	case since(r, f) >= drainBound:
		return failed(r, f, fmt.Sprintf("pods still run after %v: %s", drainBound, f.Turn.Message))
	}
	return Decision{Step: r.Step, Message: f.Turn.Message, Next: r.Since.Add(drainBound)}
}

func rebooting(r Request, f Facts) Decision {
	switch {
	case f.GoingDown:
		return Decision{Step: r.Step, Message: "the host is shutting down"}
	case f.Command.Failed != "":
		return failed(r, f, "the reboot failed: "+f.Command.Failed)
	case !f.Command.Done && r.Cancelled != "":
		return Decision{Step: controlplane.RebootDone, Message: "cancelled by " + r.Cancelled}
	case !f.Command.Done && !r.Now && f.Turn.Lost:
		return failed(r, f, "the slot was released: "+f.Turn.Message)
	case !f.Command.Done && f.Unannounced != "" && since(r, f) < downBound:
		return Decision{Step: r.Step, Message: f.Unannounced, Next: r.Since.Add(downBound)}
	case since(r, f) >= downBound:
		return failed(r, f, fmt.Sprintf("the host does not go down, %v after the reboot was to begin", downBound))
	}
	return Decision{Step: r.Step, Message: "running `reboot.command`", Next: r.Since.Add(downBound)}
}

func verifying(r Request, f Facts, p Policy) Decision {
	stay := func(format string, args ...any) Decision {
		return Decision{Step: r.Step, Message: fmt.Sprintf(format, args...)}
	}
	still := without(f.Wanted, func(w Finding) bool { return w.New })
	switch {
	case r.Cancelled != "":
		return Decision{Step: controlplane.RebootDone, Message: "the checks after the reboot were ended by " + r.Cancelled}
	case f.GoingDown:
		return stay("the host is shutting down again")
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
	return min(firstPause<<min(attempts-1, 10), longestPause)
}

// since is the duration of the current step so far; zero if the clock was set back.
func since(r Request, f Facts) time.Duration { return max(0, f.Now.Sub(r.Since)) }

func clock(at time.Time) string { return at.Format("2006-01-02 15:04:05 MST") }
