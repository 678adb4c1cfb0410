package reboot_test

import (
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/calendar"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func windows(t testing.TB, texts ...string) (all calendar.Windows) {
	t.Helper()
	for _, text := range texts {
		w, err := calendar.Parse(text, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

// TestDecide has a row for each rule. The reboot was requested at eleven. Nothing prevents it unless the row says
// so.
func TestDecide(t *testing.T) {
	const (
		wanted, waiting, granted = controlplane.RebootWanted, controlplane.RebootWaiting, controlplane.RebootGranted
		draining, rebooting      = controlplane.RebootDraining, controlplane.RebootRebooting
		verifying, done          = controlplane.RebootVerifying, controlplane.RebootDone
		before                   = "boot-0" // boot ID of the previous boot
	)
	want := []reboot.Finding{{Source: "/run/reboot-required"}}
	check := reboot.Finding{Source: "needs-restarting", Message: "core libraries were updated"}
	for name, c := range map[string]struct {
		at   controlplane.RebootStep
		with func(r *reboot.Request, f *reboot.Facts, p *reboot.Policy)

		want    controlplane.RebootStep
		message string
		failed  bool
	}{
		"a reboot that is wanted requests a slot":  {at: wanted, want: waiting},
		"a person's reboot needs no file":          {at: wanted, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { r.By, f.Wanted = "anna", nil }, want: waiting},
		"a file that is removed ends it":           {at: wanted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Wanted = nil }, want: done, message: "no file or check"},
		"a file that is removed ends the queueing": {at: waiting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Wanted = nil }, want: done},
		"a check that does not answer ends nothing": {at: wanted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Wanted, f.Undecided = nil, []reboot.Finding{check}
		}, want: wanted, message: "check needs-restarting: core libraries were updated"},
		"a check that has yet to run changes nothing": {at: granted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Wanted, f.Undecided = nil, []reboot.Finding{{Source: "c", Message: "it has not run", Pending: true}}
		}, want: granted, message: "check c: it has not run"},
		"a check that fails holds it up": {at: waiting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Undecided = []reboot.Finding{check} }, want: wanted},
		"several checks that fail are named": {at: waiting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Undecided = []reboot.Finding{{Source: "a", Message: "x"}, {Source: "/b", Message: "y"}, {Source: "c", Message: "z"}, {Source: "d"}}
		}, want: wanted, message: "check a: x, file /b: y, check c: z and 1 more"},
		"several checks that have yet to run are named": {at: wanted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Undecided = []reboot.Finding{{Source: "fails"}, {Source: "a", Message: "x", Pending: true}, {Source: "b", Message: "y", Pending: true}}
		}, want: wanted, message: "check a: x, check b: y"},
		"outside of the window it waits": {at: waiting, with: func(_ *reboot.Request, _ *reboot.Facts, p *reboot.Policy) { p.Windows = windows(t, "02:00-05:00") }, want: wanted, message: "the window opens at 2026-11-28 02:00:00 UTC"},
		"in another group it waits":      {at: waiting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.OtherGroup = "the Node is in group web" }, want: wanted, message: "the Node is in group web"},
		"within the window it continues": {at: wanted, with: func(_ *reboot.Request, _ *reboot.Facts, p *reboot.Policy) { p.Windows = windows(t, "11:00-12:30") }, want: waiting},
		"what cannot end within the window does not begin": {at: granted, with: func(_ *reboot.Request, f *reboot.Facts, p *reboot.Policy) {
			p.Windows, f.Longest = windows(t, "11:00-12:30"), 31*time.Minute
		}, want: wanted, message: "the window ends at 2026-11-27 12:30:00 UTC, and the longest of the last reboots took 31m0s"},
		"what fits into no window says so": {at: wanted, with: func(_ *reboot.Request, f *reboot.Facts, p *reboot.Policy) {
			p.Windows, f.Longest = windows(t, "11:00-12:30"), 91*time.Minute
		}, want: wanted, message: "no window of `reboot.window` is as long"},
		"a pause after a failure is kept": {at: wanted, with: func(r *reboot.Request, _ *reboot.Facts, _ *reboot.Policy) {
			r.Attempt.RetryAt, r.Attempt.Failure = noon.Add(time.Minute), "the drain failed"
		}, want: wanted, message: "the drain failed; the next attempt is at"},
		"a pause of a clock that was set back is not": {at: wanted, with: func(r *reboot.Request, _ *reboot.Facts, _ *reboot.Policy) {
			r.Attempt.RetryAt, r.Attempt.Failed = noon.Add(3*time.Hour), 1
		}, want: waiting},
		"but the pause after many failures is long": {at: wanted, with: func(r *reboot.Request, _ *reboot.Facts, _ *reboot.Policy) {
			r.Attempt.RetryAt, r.Attempt.Failed = noon.Add(3*time.Hour), 7
		}, want: wanted},
		"a host that waits for its slot says why": {at: waiting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Turn = reboot.Turn{Lost: true, Message: "held by b"}
		}, want: waiting, message: "held by b"},
		"a host that gets a slot takes its turn": {at: waiting, want: granted},
		"a step that is not on the Node waits":   {at: granted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Unannounced = "no answer" }, want: granted, message: "no answer"},
		"then pods are stopped":                  {at: granted, want: draining},
		"a slot that is lost before the drain": {at: granted, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Turn, r.Since = reboot.Turn{Lost: true}, noon.Add(-10*time.Second)
		}, want: waiting},
		"a slot that is lost within seconds": {at: granted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Turn = reboot.Turn{Lost: true, Message: "by anna"}
		}, want: granted, message: "by anna"},
		"a person who is in a hurry needs no slot, window or check": {at: wanted, with: func(r *reboot.Request, f *reboot.Facts, p *reboot.Policy) {
			r.Now, r.By, f.Turn, f.Undecided, p.Windows = true, "anna", reboot.Turn{}, []reboot.Finding{check}, windows(t, "02:00-05:00")
		}, want: granted},
		"who is in a hurry waits for no control plane": {at: granted, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			r.Now, f.Unannounced = true, "no answer"
		}, want: draining},
		"nor once the pods have stopped": {at: draining, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			r.Now, f.Unannounced, f.Drain.Done = true, "no answer", true
		}, want: rebooting},
		"who is in a hurry waits after a failure": {at: wanted, with: func(r *reboot.Request, _ *reboot.Facts, _ *reboot.Policy) {
			r.Now, r.Attempt.RetryAt, r.Attempt.Failure = true, noon.Add(time.Minute), "the drain failed"
		}, want: wanted, message: "the drain failed; the next attempt is at"},
		"a drain in progress":  {at: draining, want: draining},
		"a drain that is over": {at: draining, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Drain.Done = true }, want: rebooting},
		"a drain that fails":   {at: draining, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Drain.Failed = "pods still run: a/b" }, want: wanted, message: "the drain failed: pods still run: a/b", failed: true},
		"a slot that is lost": {at: draining, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Turn, f.Drain.Done = reboot.Turn{Lost: true, Message: "by anna"}, true
		}, want: wanted, message: "by anna", failed: true},
		"a server that gives up": {at: draining, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Turn.Failed, f.Turn.Message = true, "blocked by a/b"
		}, want: wanted, message: "blocked by a/b", failed: true},
		"a drain without end":            {at: draining, with: func(r *reboot.Request, _ *reboot.Facts, _ *reboot.Policy) { r.Since = noon.Add(-4 * time.Hour) }, want: wanted, failed: true},
		"a drain that is cancelled":      {at: draining, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { r.Cancelled, f.Drain.Done = "anna", true }, want: done, message: "cancelled by anna"},
		"critical pods are stopped":      {at: rebooting, want: rebooting, message: "stopping critical pods"},
		"the command runs":               {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Last.Done = true }, want: rebooting, message: "running `reboot.command`"},
		"critical pods that do not stop": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Last.Failed = "pods still run: a/b" }, want: wanted, message: "the drain of critical pods failed: pods still run: a/b", failed: true},
		"critical pods that stop for ever": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Last.Running, f.LastTook = true, 3*time.Hour
		}, want: wanted, failed: true},
		"while they stop, no answer is needed": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Last.Running, f.Unannounced, f.Turn = true, "no answer", reboot.Turn{Message: "no answer"}
		}, want: rebooting, message: "stopping critical pods"},
		"nor after that": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Last.Done, f.Unannounced = true, "no answer"
		}, want: rebooting, message: "running"},
		"but a slot that is lost counts": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Last.Running, f.Turn = true, reboot.Turn{Lost: true}
		}, want: wanted, failed: true},
		"their time is not the command's": {at: rebooting, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Last.Done, f.Command.Done, f.LastTook, r.Since = true, true, time.Hour, noon.Add(-74*time.Minute)
		}, want: rebooting},
		"the command fails": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Command.Failed = "exit status 1" }, want: wanted, message: "the reboot failed: exit status 1", failed: true},
		"a host that goes down": {at: rebooting, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.GoingDown, r.Since = true, noon.Add(-time.Hour)
		}, want: rebooting},
		"a host that does not go down": {at: rebooting, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Command.Done, r.Since = true, noon.Add(-16*time.Minute)
		}, want: wanted, failed: true},
		"a slot that is lost before the command": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Turn = reboot.Turn{Lost: true} }, want: wanted, failed: true},
		"and after it": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Turn, f.Command.Done = reboot.Turn{Lost: true}, true
		}, want: rebooting},
		"a cancellation in time":                  {at: rebooting, with: func(r *reboot.Request, _ *reboot.Facts, _ *reboot.Policy) { r.Cancelled = "anna" }, want: done},
		"a host that is back":                     {at: rebooting, with: func(r *reboot.Request, _ *reboot.Facts, _ *reboot.Policy) { r.Boot = before }, want: verifying},
		"power cut during a drain":                {at: draining, with: func(r *reboot.Request, _ *reboot.Facts, _ *reboot.Policy) { r.Boot = before }, want: verifying},
		"somebody else reboots a host that waits": {at: waiting, with: func(r *reboot.Request, _ *reboot.Facts, _ *reboot.Policy) { r.Boot = before }, want: done, message: "rebooted by something else"},
		"all is well":                             {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Wanted = nil }, want: done},
		"all is well after a power cut":           {at: verifying, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { r.ByOther, f.Wanted = true, nil }, want: done, message: "the host went down before"},
		"a Node that is not Ready yet": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Wanted, f.NotReady = nil, "the Node is not Ready"
		}, want: verifying, message: "the Node is not Ready"},
		"a Node that is Ready for a moment": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Wanted, f.ReadyFor = nil, 59*time.Second }, want: verifying, message: "until the Node was Ready for 1m0s without a break"},
		"containers that do not run yet": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Wanted, f.NotStarted = nil, []string{"db"}
		}, want: verifying, message: "db"},
		"containers that are not known yet": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Wanted, f.Unknown = nil, "the record cannot be read yet"
		}, want: verifying, message: "the record cannot be read yet"},
		"a reboot that is still wanted": {at: verifying, want: verifying, message: "a reboot is still wanted after the reboot"},
		"several reasons for another reboot": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Wanted = []reboot.Finding{{Source: "new", New: true}, {Source: "a"}, {Source: "b"}}
		}, want: verifying, message: "a reboot is still wanted after the reboot: a, b"},
		"several checks that fail after a reboot": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Wanted, f.Undecided = nil, []reboot.Finding{{Source: "a", Message: "x"}, {Source: "b", Message: "y"}}
		}, want: verifying, message: "check a: x, check b: y"},
		"a slot that was released after the reboot": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Turn = reboot.Turn{Lost: true, Message: "the slot was released"}
		}, want: verifying, message: "/run/reboot-required; the slot was released"},
		"a slot that was released during the boot": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Turn, f.Command.Done = reboot.Turn{Lost: true, Message: "the slot was released"}, true
		}, want: rebooting, message: "`reboot.command` has returned; if the host does not go down, the attempt ends at 2026-11-27 12:15:00 UTC; the slot was released"},
		"a reboot without a released slot ends": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Wanted, f.Turn = nil, reboot.Turn{Lost: true, Message: "the slot was released"}
		}, want: done},
		"a reboot that is wanted again": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Wanted = []reboot.Finding{{Source: "/run/reboot-required", New: true}}
		}, want: done},
		"a check that fails after a reboot": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Wanted, f.Undecided = nil, []reboot.Finding{check}
		}, want: verifying},
		"a command that runs cannot be cancelled": {at: rebooting, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			r.Cancelled, f.Command.Running = "anna", true
		}, want: rebooting},
		"one that has returned can": {at: rebooting, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { r.Cancelled, f.Command.Done = "anna", true }, want: done},
		"but not a shutdown":        {at: rebooting, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { r.Cancelled, f.GoingDown = "anna", true }, want: rebooting},

		"without a Node, no slot is requested":  {at: waiting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Gone = "it has left" }, want: wanted, message: "it has left"},
		"without a Node, no pod is stopped":     {at: granted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Gone = "it has left" }, want: wanted, message: "it has left"},
		"a Node that is deleted ends the drain": {at: draining, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Gone, f.Drain.Done = "it has left", true }, want: wanted, message: "it has left", failed: true},
		"and the reboot before its command":     {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Gone = "it has left" }, want: wanted, failed: true},
		"but not after it has begun": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Gone, f.Command.Running = "it has left", true
		}, want: rebooting},
		"nor one of a person who is in a hurry": {at: draining, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			r.Now, f.Gone, f.Drain.Done = true, "it has left", true
		}, want: rebooting},
		"a lock that does not confirm holds it up": {at: granted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Turn = reboot.Turn{Message: "no answer"} }, want: granted, message: "no answer"},
		"also when the pods have stopped": {at: draining, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Turn, f.Drain.Done = reboot.Turn{Message: "no answer"}, true
		}, want: draining, message: "no answer"},
		"also right before the command": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Turn = reboot.Turn{Message: "no answer"} }, want: rebooting, message: "no answer"},
		"but not for ever": {at: rebooting, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Turn, r.Since = reboot.Turn{Message: "no answer"}, noon.Add(-16*time.Minute)
		}, want: wanted, message: "no answer", failed: true},
		"nor while no pod runs": {at: draining, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Unannounced, f.Drain.Done, r.Since = "no answer", true, noon.Add(-4*time.Hour)
		}, want: wanted, message: "no answer", failed: true},
		"a verdict holds it up": {at: wanted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Held = []reboot.Finding{{Source: "state", Message: "read-only"}}
		}, want: wanted, message: "read-only (state)"},
		"also when it has a slot": {at: granted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Held = []reboot.Finding{{Source: "state"}}
		}, want: wanted, message: "state"},
		"a verdict that is not known yet costs no slot": {at: granted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Held = []reboot.Finding{{Source: "runtimes", Message: "not queried", Pending: true}}
		}, want: granted, message: "not queried (runtimes)"},
		"nor its place in the queue": {at: waiting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Held = []reboot.Finding{{Source: "runtimes", Message: "not queried", Pending: true}}
		}, want: waiting, message: "not queried (runtimes)"},
		"beside one that is known": {at: granted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Held = []reboot.Finding{{Source: "runtimes", Pending: true}, {Source: "state", Message: "read-only"}}
		}, want: wanted, message: "read-only (state)"},
		"but not a person who is in a hurry": {at: wanted, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			r.Now, f.Held = true, []reboot.Finding{{Source: "state"}, {Source: "runtimes", Pending: true}}
		}, want: granted},
		"another lock ends the queueing": {at: waiting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.OtherLock = "it has changed" }, want: wanted, message: "it has changed"},
		"another lock ends the drain": {at: draining, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.OtherLock, f.Drain.Done = "it has changed", true
		}, want: wanted, message: "it has changed", failed: true},
		"and the reboot, before its command begins": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.OtherLock = "it has changed" }, want: wanted, failed: true},
		"but not the checks after it": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.OtherLock, f.Wanted = "it has changed", nil
		}, want: done},
		"an earlier lock is given back first": {at: wanted, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Owed = "not given back" }, want: wanted, message: "not given back"},
		"for an hour": {at: wanted, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			f.Owed, r.Since = "not given back", noon.Add(-time.Hour)
		}, want: waiting},
		"a host that must not reboot stops waiting": {at: waiting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Disabled = true }, want: done, message: "`reboot.enabled` is false"},
		"and draining":                  {at: draining, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Disabled, f.Drain.Done = true, true }, want: done},
		"and does not begin the reboot": {at: rebooting, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Disabled = true }, want: done},
		"and checks nothing after it":   {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Disabled = true }, want: done},

		"a person who has seen enough": {at: verifying, with: func(r *reboot.Request, f *reboot.Facts, _ *reboot.Policy) {
			r.Cancelled, f.NotReady = "anna", "not Ready"
		}, want: done},
		"a host that goes down once more": {at: verifying, with: func(_ *reboot.Request, f *reboot.Facts, _ *reboot.Policy) { f.Wanted, f.GoingDown = nil, true }, want: verifying},
	} {
		t.Run(name, func(t *testing.T) {
			r := reboot.Request{Step: c.at, Boot: "boot-1", Since: noon, Wanted: noon.Add(-time.Hour)}
			f := reboot.Facts{Now: noon, Boot: "boot-1", Wanted: want, Turn: reboot.Turn{Granted: true}, ReadyFor: time.Hour}
			p := reboot.Policy{ReadyFor: time.Minute}
			if c.with != nil {
				c.with(&r, &f, &p)
			}
			d := reboot.Decide(r, f, p)
			if d.Step != c.want || d.Failed != c.failed || !strings.Contains(d.Message, c.message) {
				t.Errorf("Decide() = %s, failed %t, %q, want %s, %t, %q", d.Step, d.Failed, d.Message, c.want, c.failed, c.message)
			}
		})
	}
}
