package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
)

func (a *app) rebootCommand() *cobra.Command {
	var ask reboot.Ask
	var dry, cancel bool
	cmd := a.reader("reboot", "Request a reboot of this host in its turn; needs root", func(ctx context.Context, c *api.Client, out *output) error {
		switch {
		case dry:
			return showReboot(ctx, c, out, ask.Now)
		case cancel:
			return requestReboot(ctx, out, c.CancelReboot)
		}
		return requestReboot(ctx, out, func(ctx context.Context) (reboot.Report, error) { return c.Reboot(ctx, ask) })
	})
	cmd.Args = onThisHost
	cmd.Long = `Request a reboot of this host, and return at once. The host waits for its window
and for a slot of its group, is cordoned, stops its pods in their phases, runs
reboot.command, and gives the slot back when it is Ready again and its checks
pass. To follow it, run hostler status. It needs reboot.enabled: true.`
	cmd.Flags().StringVar(&ask.Reason, "reason", "", "why, for everybody who sees the reboot: `TEXT` of at most 100 characters")
	cmd.Flags().BoolVar(&ask.Now, "now", false, "wait neither for a window nor for checks nor for a slot; pods are stopped in order all the same. The output names the faults of the host that this overrides. If a request waits, --reason may be omitted")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what the reboot would wait for and do, and change nothing; group hostler may run this")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel the reboot: start the stopped containers that hostler starts, uncordon, give the slot back")
	for _, other := range []string{"dry-run", "now", "reason"} {
		cmd.MarkFlagsMutuallyExclusive("cancel", other)
	}
	return cmd
}

// requestReboot sends a request and prints its result.
func requestReboot(ctx context.Context, out *output, request func(context.Context) (reboot.Report, error)) error {
	r, err := request(ctx)
	if err != nil {
		return err
	}
	return out.print(r, func(t *table) {
		switch {
		case r.Request == nil:
		case r.Cancelled != "":
			t.line("reboot cancelled; files and checks that request one now are ignored until the next boot, or until `hostler reboot --reason TEXT`")
			if r.Step == controlplane.RebootDraining {
				t.line("pods that hostler does not start stay stopped: see `hostler ps --last-shutdown`")
			}
		default:
			t.line("reboot requested: %s; to follow it, run `hostler status`", r.Reason)
			for _, f := range r.Held {
				verb := "held up by:"
				if r.Now {
					verb = "overrides: "
				}
				t.line("%s %s", verb, withHint(f))
			}
		}
	})
}

// showReboot prints what a reboot would wait for and do. With now, that is a reboot with --now.
func showReboot(ctx context.Context, c *api.Client, out *output, now bool) error {
	p, err := c.RebootPlan(ctx)
	if err != nil {
		return err
	}
	if now {
		p.Slots, p.Window, p.Undecided = "", "", []reboot.Finding{}
	}
	return out.print(p, func(t *table) {
		t.line("%s", describeReboot(out, &p.Report))
		for _, f := range p.Wanting {
			t.line("requested by: %s", f)
		}
		if len(p.Ignored) > 0 {
			t.line("%s", ignored(p.Ignored))
		}
		for _, f := range p.Undecided {
			t.line("held up by:   %s", withHint(f))
		}
		for _, f := range p.Held {
			verb := "held up by:"
			if now {
				verb = "overrides: "
			}
			t.line("%s   %s", verb, withHint(f))
		}
		if p.Unprotected != "" {
			t.line("despite:      %s (protection): the reboot stops all pods before", p.Unprotected)
		}
		slot := "none is needed: no other host shares this control plane"
		switch {
		case now:
			slot = "none is needed with --now"
		case p.Slots != "":
			slot = fmt.Sprintf("of group %s, from %s", p.Group, p.Slots)
		}
		t.line("slot:    %s", slot)
		if p.Window != "" {
			t.line("window:  %s", p.Window)
		}
		stops := p.Drain.Refusal
		if stops == "" {
			stops = fmt.Sprintf("cordon, stop %s in at most %v (to see them, run `hostler drain --all --dry-run`)", count(len(p.Drain.Pods()), "pod"), p.Drain.Bound.Duration)
		}
		t.line("then:    %s", stops)
		t.line("         `%s`, then wait until the Node is Ready for %v and the containers that hostler starts run", p.Command, p.ReadyFor.Duration)
		if p.Longest.Duration > 0 {
			t.line("took:    at most %v in the last reboots", p.Longest.Duration)
		}
		if p.Drain.Refusal == "" {
			printAfterBoot(t, append(p.Drain.Pods(), p.Drain.Critical...), p.RestartAfterBoot)
		}
	})
}

// withHint formats a finding and what to do about it.
func withHint(f reboot.Finding) string { return strings.TrimSuffix(f.String()+": "+f.Hint, ": ") }

// describeReboot describes the state of the reboot in one line.
func describeReboot(out *output, r *reboot.Report) string {
	if r == nil || r.Request == nil {
		return "no reboot was requested yet"
	}
	why := r.Reason
	switch {
	case r.By != "":
		why = fmt.Sprintf("%s (%s)", r.Reason, r.By)
	case len(r.Wanting) > 0 && r.Step != controlplane.RebootDone:
		why = reboot.Names(r.Wanting) // more may have appeared since
	}
	message := ""
	if r.Message != "" {
		message = ": " + r.Message
	}
	switch r.Step {
	case controlplane.RebootDone:
		return fmt.Sprintf("none is requested; the last request, %s, ended %s%s", why, out.ago(r.Since), message)
	case controlplane.RebootWanted, controlplane.RebootWaiting:
		return out.yellow(fmt.Sprintf("requested %s: %s; waits%s; to cancel it, run `hostler reboot --cancel`", out.ago(r.Wanted), why, message))
	}
	next := ""
	switch r.Step {
	case controlplane.RebootGranted, controlplane.RebootDraining:
		next = "; to cancel it and start its pods again, run `hostler reboot --cancel`"
	case controlplane.RebootRebooting:
		next = "; if the host does not go down, run `hostler reboot --cancel`"
	case controlplane.RebootVerifying:
		next = "; to end its checks and give the slot back, run `hostler reboot --cancel`"
	}
	return out.yellow(fmt.Sprintf("%s, began %s: %s%s%s", strings.ToLower(string(r.Step)), out.ago(r.Since), why, message, next))
}

// ignored names files and checks that request a reboot after a person has cancelled one.
func ignored(list []reboot.Finding) string {
	var names []string
	for _, f := range list {
		names = append(names, f.String())
	}
	return "ignored until the next boot: " + strings.Join(names, "; ")
}

// rebootLine is that line for the status; empty if there is nothing to say.
func rebootLine(out *output, s api.Status) string {
	if s.Reboot == nil {
		return ""
	}
	if s.Reboot.Request != nil && s.Reboot.Step != controlplane.RebootDone {
		return describeReboot(out, s.Reboot)
	}
	line := ""
	if len(s.Reboot.Ignored) > 0 {
		line = ignored(s.Reboot.Ignored) + "; to reboot, run `hostler reboot --reason TEXT`"
	}
	if broken := s.Reboot.Broken(); len(broken) > 0 {
		line = joined(line, out.yellow(fmt.Sprintf("cannot request a reboot: %s; see `hostler doctor`", reboot.Names(broken))))
	}
	return line
}
