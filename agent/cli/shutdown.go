package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/plan"
)

func (a *app) shutdownCommand() *cobra.Command {
	show := a.reader("plan", "Show when each pod would be stopped, and its grace period", func(ctx context.Context, c *api.Client, out *output) error {
		p, err := c.ShutdownPlan(ctx)
		if err != nil {
			return err
		}
		if err := out.print(p, func(t *table) { printShutdownPlan(t, out, p) }); err != nil {
			return err
		}
		return nothingKnown(p.Plan)
	})
	show.Long = `Show when each pod would be stopped, and its grace period.

Labels change both: /usr/share/doc/hostler/docs/reference/labels.md`
	return group("shutdown", "Show what a shutdown would do, and what the last one did", show, a.shutdownReport())
}

// nothingKnown returns an error if runtimes did not answer and no pod is known. A plan without pods
// would look like an empty host. `hostler ps` does the same.
func nothingKnown(p plan.Plan) error {
	if p.Message == "" || len(p.Phases) == 0 || slices.ContainsFunc(p.Phases, func(phase plan.PlannedPhase) bool { return len(phase.Pods) > 0 }) {
		return nil
	}
	return silentError{}
}

func printShutdownPlan(t *table, out *output, p api.ShutdownPlan) {
	warn(t, p.Message)
	switch {
	case len(p.Phases) == 0:
		t.line("shutdown protection is switched off: a shutdown does not wait for the pods")
		return
	case p.State == shutdown.Delegated:
		t.line("delegated to %s; without it, hostler would wait at most %s for the pods", p.Reason, p.Total.Duration)
	case p.State == shutdown.Disarmed:
		t.line("%s: %s", out.red("a shutdown would not wait for the pods"), p.Reason)
		t.line("once this is fixed (run `hostler doctor`), a shutdown waits at most %s for the pods:", p.Total.Duration)
	case p.Granted.Duration == 0:
		text := fmt.Sprintf("a shutdown waits at most %s for the pods, if logind grants it: %s", p.Total.Duration, cmp.Or(p.Shortage, "it has not reported its limit"))
		for _, line := range wrap(text, screenWidth) {
			t.line("%s", line)
		}
	case p.Granted.Duration < max(p.Total.Duration, p.Needed.Duration):
		line := fmt.Sprintf("the phases take %s, but logind grants only %s: they are shortened to fit", p.Total.Duration, p.Granted.Duration)
		if p.Shortage != "" {
			line = fmt.Sprintf("the phases take %s, and are shortened to fit what logind grants:", p.Total.Duration)
		}
		t.line("%s", out.red(line))
		if p.Shortage != "" {
			for _, line := range wrap(p.Shortage, screenWidth) {
				t.line("%s", line)
			}
		}
	default:
		t.line("a shutdown waits at most %s for the pods; logind grants %s", p.Total.Duration, doctor.Span(p.Granted.Duration))
	}
	if len(p.StopFirst) > 0 {
		t.line("stopped before the phases, in at most %s: %s", shutdown.FirstBound, strings.Join(p.StopFirst, ", "))
	}
	printPhases(t, out, p.Plan)
	printUnits(t, p.Plan)
	if p.State != shutdown.Delegated { // if Delegated, hostler stops nothing
		printAfterBoot(t, p.Pods(), p.RestartAfterBoot)
	}
	printNotes(t, p.Plan)
}

// printPhases lists the phases and their pods.
func printPhases(t *table, out *output, p plan.Plan) {
	for i, phase := range p.Phases {
		who := fmt.Sprintf("priority %d and above", phase.Priority)
		if i == 0 && phase.Priority > 0 {
			who += ", and all below" // pods without a priority are in this phase
		}
		t.line("")
		t.line("%s: %s, %s, %s", phase.Name, who, phaseTime(out, phase), count(len(phase.Pods), "pod"))
		if len(phase.Pods) == 0 {
			continue
		}
		columns := []string{"  NAMESPACE", "POD", "GRACE", "CONTAINERS"}
		if out.wide() {
			columns = []string{"  NAMESPACE", "POD", "PRIORITY", "GRACE", "CONTAINERS"}
		}
		t.row(columns...)
		for _, pod := range phase.Pods {
			containers := ""
			for i, c := range pod.Containers {
				if i > 0 {
					containers += ", "
				}
				grace, by := c.Grace.Duration.String(), ""
				if c.Limit != "" {
					grace += " of " + c.Wanted.Duration.String()
				}
				if c.Unit != "" {
					by = ", by " + c.Unit
				}
				if after := slices.Concat(c.AfterUnits, c.After); len(after) > 0 {
					by += ", after " + strings.Join(after, " and ")
				}
				if c.Limit != "" {
					by += ", limited by " + c.Limit
				}
				containers += fmt.Sprintf("%s (%s%s)", c.Name, grace, by)
			}
			cells := []string{"  " + pod.Namespace, pod.Name, pod.Grace.Duration.String(), containers}
			if out.wide() {
				cells = slices.Insert(cells, 2, fmt.Sprint(pod.Priority))
			}
			t.row(cells...)
		}
	}
}

// phaseTime returns the time of a phase, and what happens if it has none.
func phaseTime(out *output, phase plan.PlannedPhase) string {
	text := phase.Grace.Duration.String()
	if wanted := phase.Wanted.Duration; wanted > 0 {
		text += " of " + wanted.String()
	}
	if unused := phase.Unused.Duration; unused > 0 {
		text += " and the " + unused.String() + " of phases without pods"
	}
	switch {
	case phase.Grace.Duration > 0:
		return text
	case phase.Wanted.Duration > 0:
		return text + " (" + out.red("NO TIME: stopped with the next phase") + ")"
	}
	return text + " (" + out.red("NO TIME: may be killed at once") + ")"
}

// printUnits prints what limits the grace periods of containers that belong to systemd units.
func printUnits(t *table, p plan.Plan) {
	for _, phase := range p.Phases {
		for _, pod := range phase.Pods {
			if slices.ContainsFunc(pod.Containers, func(c plan.PlannedContainer) bool { return c.Unit != "" }) {
				t.line("")
				for _, line := range wrap("containers \"by UNIT\": systemd stops the unit. The grace period is at most the container's own stop timeout "+
					"(Podman: 10s by default) and the TimeoutStopSec= of the unit. hostler cannot extend it.", screenWidth) {
					t.line("%s", line)
				}
				return
			}
		}
	}
}

// printNotes lists labels that are ignored, and the values that apply instead.
func printNotes(t *table, p plan.Plan) {
	if len(p.Notes) > 0 {
		t.line("")
	}
	for _, n := range p.Notes {
		line := "note: " + n.String()
		if n.Effect != "" {
			line += "; " + n.Effect
		}
		t.line("%s", line)
	}
	if len(p.Notes) > 0 {
		t.line("      correct these labels, and create the pods again; to make a running pod critical, set shutdown.critical")
	}
}
