package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/shutdown/journal"
)

func (a *app) drainCommand() *cobra.Command {
	var req maintenance.DrainRequest
	var dry bool
	cmd := a.reader("drain", "Cordon the Node and stop its pods without a shutdown; needs root", func(ctx context.Context, c *api.Client, out *output) error {
		if dry {
			return showDrain(ctx, c, out, req)
		}
		return a.drain(ctx, c, out, req)
	})
	cmd.Args = onThisHost
	cmd.Long = `Cordon the Node and stop its pods in the phases of a shutdown, but do not shut
down. Critical pods keep running unless you set --all. The Node stays cordoned:
to open it to new pods, run hostler uncordon. Ctrl-C stops the drain. Pods that
were not yet sent the stop signal keep running.`
	cmd.Flags().BoolVar(&req.All, "all", false, "also stop critical pods")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be stopped, and change nothing; group hostler may run this")
	return cmd
}

func (a *app) cordonCommand() *cobra.Command {
	return a.cordoner("cordon", "Close the Node to new pods; needs root", true)
}

func (a *app) uncordonCommand() *cobra.Command {
	return a.cordoner("uncordon", "Open the Node to new pods; needs root", false)
}

func (a *app) cordoner(verb, short string, unschedulable bool) *cobra.Command {
	cmd := a.reader(verb, short, func(ctx context.Context, c *api.Client, out *output) error {
		r, err := c.Cordon(ctx, unschedulable)
		if err != nil {
			return err
		}
		var drained journal.Record
		var now *stoppedNow
		if !unschedulable && (out.format == "table" || out.wide()) {
			drained, now = stillStopped(ctx, c)
		}
		return out.print(r, func(t *table) {
			already := ""
			if !r.Changed {
				already = "already "
			}
			t.line("node %s is %s%sed", r.Node, already, verb)
			if r.Message != "" {
				t.line("%s", r.Message)
			}
			printStopped(t, drained, now)
		})
	})
	cmd.Args = onThisHost
	return cmd
}

// drain stops the pods and prints each result. It returns an error unless all pods have stopped.
func (a *app) drain(ctx context.Context, c *api.Client, out *output, req maintenance.DrainRequest) error {
	human := out.format == "table" || out.wide()
	report, err := c.Drain(ctx, req, func(s maintenance.DrainStep) {
		if human {
			fmt.Fprintln(a.Stdout, cmp.Or(s.Waiting, describePod(s.PodRecord)))
		}
	})
	if err != nil {
		if ctx.Err() != nil {
			a.printRemaining(c, req)
		}
		if !human && !report.StartedAt.IsZero() { // JSON output includes the partial result
			return errors.Join(out.print(report, nil), err)
		}
		return err
	}
	if err := out.print(report, func(t *table) { printDrain(t, report) }); err != nil {
		return err
	}
	if !report.Graceful {
		return silentError{}
	}
	return nil
}

// cancelTime is how long an interrupted command waits for the drain to end, to list the pods that
// still run. The agent ends the drain within two seconds.
const cancelTime = 5 * time.Second

// printRemaining waits for the end of an interrupted drain. Then it prints the pods that still run,
// and whether the Node is cordoned.
func (a *app) printRemaining(c *api.Client, req maintenance.DrainRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTime)
	defer cancel()
	fmt.Fprintln(a.Stderr, "drain interrupted: waiting for it to end")
	s, err := c.Status(ctx)
	for err == nil && s.Shutdown.ManualDrain != nil {
		select {
		case <-time.After(200 * time.Millisecond):
			s, err = c.Status(ctx)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	var left maintenance.DrainPlan
	if err == nil {
		left, err = c.DrainPlan(ctx, req)
	}
	if err != nil {
		fmt.Fprintf(a.Stderr, "cannot list the remaining pods: %s\nhint: run `hostler ps` for the running pods, and `hostler status` for the cordon\n", firstLine(err.Error()))
		return
	}
	var names []string
	for _, phase := range left.Phases {
		for _, pod := range phase.Pods {
			names = append(names, strings.TrimPrefix(pod.Namespace+"/"+pod.Name, "/"))
		}
	}
	if len(names) == 0 {
		fmt.Fprintln(a.Stderr, "no pods left to stop")
	} else {
		fmt.Fprintf(a.Stderr, "still running or stopping: %s\n", strings.Join(names, ", "))
	}
	if s.Node != nil && s.Node.Spec.Unschedulable || s.Cordon != nil && s.Cordon.Unschedulable {
		fmt.Fprintf(a.Stderr, "node %s stays cordoned; to open it, run `hostler uncordon`\n", left.Node)
	} else {
		fmt.Fprintf(a.Stderr, "node %s is not cordoned\n", left.Node)
	}
}

// describePod returns one line with the result of a pod.
func describePod(p journal.PodRecord) string {
	name := strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")
	took := ""
	if !p.StartedAt.IsZero() && !p.FinishedAt.IsZero() {
		took = " after " + p.FinishedAt.Sub(p.StartedAt).Round(10*time.Millisecond).String()
	}
	line := fmt.Sprintf("%s %s%s", p.Outcome, name, took)
	switch p.Outcome {
	case journal.Skipped:
		return "skipped " + name + ": critical pod"
	case journal.Killed:
		return line + ": " + joined("grace period over", limits(p))
	}
	if note := podNote(p); note != "" {
		line += ": " + note
	}
	return line
}

func printDrain(t *table, r maintenance.DrainReport) {
	counts := map[journal.Outcome]int{}
	for _, p := range r.Pods {
		counts[p.Outcome]++
	}
	line := fmt.Sprintf("%s stopped", count(counts[journal.Stopped]+counts[journal.Killed], "pod"))
	if n := counts[journal.Killed]; n > 0 {
		line += fmt.Sprintf(" (%d killed)", n)
	}
	if n := counts[journal.Left]; n > 0 {
		line += fmt.Sprintf("; %s NOT stopped", count(n, "pod"))
	}
	line += fmt.Sprintf(", took %s", r.FinishedAt.Sub(r.StartedAt).Round(time.Millisecond))
	if n := counts[journal.Skipped]; n > 0 {
		line += fmt.Sprintf("; %s skipped (to stop critical pods, too, run `hostler drain --all`)", count(n, "critical pod"))
	}
	t.line("%s", line)
	if r.Error != "" {
		t.line("incomplete: %s", r.Error)
	}
	if r.Unschedulable {
		t.line("node %s is cordoned; to open it to new pods, run `hostler uncordon`", r.Node)
	}
	if r.Message != "" {
		t.line("%s", r.Message)
	}
	printStopped(t, r.Record, nil)
}

func showDrain(ctx context.Context, c *api.Client, out *output, req maintenance.DrainRequest) error {
	p, err := c.DrainPlan(ctx, req)
	if err != nil {
		return err
	}
	if err := out.print(p, func(t *table) { printDrainPlan(t, out, p) }); err != nil {
		return err
	}
	if len(p.Critical) > 0 {
		return nil
	}
	return nothingKnown(p.Plan)
}

func printDrainPlan(t *table, out *output, p maintenance.DrainPlan) {
	warn(t, p.Message)
	if p.Refusal != "" {
		t.line("%s: %s", out.red("a drain would be refused"), strings.TrimPrefix(p.Refusal, "drain: "))
	}
	pods := 0
	for _, phase := range p.Phases {
		pods += len(phase.Pods)
	}
	if pods == 0 {
		t.line("a drain would cordon node %s; no pods to stop", p.Node)
	} else {
		t.line("a drain would cordon node %s and stop %s in at most %s", p.Node, count(pods, "pod"), p.Bound.Duration)
	}
	printPhases(t, out, p.Plan)
	printUnits(t, p.Plan)
	if len(p.Critical) > 0 {
		t.line("")
		t.line("critical, skipped without --all: %s", count(len(p.Critical), "pod"))
		t.row("  NAMESPACE", "POD")
		for _, pod := range p.Critical {
			t.row("  "+pod.Namespace, pod.Name)
		}
	}
	printNotes(t, p.Plan)
}
