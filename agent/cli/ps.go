package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/inspect"
	"hostler.io/hostler/shutdown/journal"
)

func (a *app) psCommand() *cobra.Command {
	var last bool
	cmd := a.reader("ps", "List pods with their shutdown phase and grace period", func(ctx context.Context, c *api.Client, out *output) error {
		if last {
			return a.lastShutdown(ctx, c, out)
		}
		list, err := c.Pods(ctx)
		if err != nil {
			return err
		}
		return out.print(list, func(t *table) {
			warn(t, list.Message)
			printPods(t, out, list.Pods)
		})
	})
	cmd.Long = `List pods with their shutdown phase and grace period. A phase also gets the
time that earlier phases do not need.

Outcomes of a shutdown: /usr/share/doc/hostler/docs/howto/last-shutdown.md`
	cmd.Flags().BoolVar(&last, "last-shutdown", false, "show how each pod ended in the last shutdown")
	return cmd
}

func printPods(t *table, out *output, pods []api.Pod) {
	if len(pods) == 0 {
		t.line("no pods")
		return
	}
	header := []string{"NAMESPACE", "POD", "CONTAINERS", "STATE", "PHASE", "GRACE", "AGE"}
	if out.wide() {
		header = append(header, "PRIORITY", "ID", "RUNTIME", "LAST SHUTDOWN", "LABELS")
	}
	t.row(header...)
	for _, p := range pods {
		grace := ""
		if p.Phase != "" {
			grace = p.Grace.Duration.String()
		}
		row := []string{p.Namespace, p.Name, fmt.Sprint(len(p.Containers)), podState(p), p.Phase, grace, age(out.now().Sub(p.CreatedAt))}
		if out.wide() {
			last := "-"
			if p.LastShutdown != nil {
				last = string(p.LastShutdown.Outcome)
			}
			row = append(row, fmt.Sprint(p.Priority), short(p.ID), p.Runtime, last, strings.Join(p.Labels, ", "))
		}
		t.row(row...)
	}
}

// podState counts the states of a pod's containers: "2 Running", or "1 Exited, 1 Running".
func podState(p api.Pod) string {
	counts := map[string]int{}
	for _, c := range p.Containers {
		counts[c.State]++
	}
	var parts []string
	for _, state := range []string{"Unknown", "Created", "Exited", "Running"} {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(parts) == 0 {
		return "Empty"
	}
	return strings.Join(parts, ", ")
}

// history returns the records of the last shutdowns, and the containers that were not started since
// the boot. If no agent answers, root reads the journal file. fault says that it may be the wrong
// file.
func (a *app) history(ctx context.Context, c *api.Client) (history journal.History, notStarted []string, fault, err error) {
	s, err := c.Status(ctx)
	history, notStarted = s.Shutdown.History(), s.NotStarted
	if unreachable := new(api.UnreachableError); errors.As(err, &unreachable) && os.Geteuid() == 0 && a.socket == "" {
		var loaded config.Loaded
		if _, loaded, fault = a.orDefaults(ctx); fault != nil {
			fmt.Fprintf(a.Stderr, "warning: invalid configuration, using the defaults:\n%v\n", fault)
		}
		fmt.Fprintln(a.Stderr, "no agent answers; reading its records in", loaded.State.Directory)
		history, err = inspect.LastShutdown(loaded.Config, slog.New(slog.DiscardHandler))
		if fault != nil {
			fault = silentError{} // already printed
		}
	}
	return history, notStarted, fault, err
}

// lastShutdown prints the result of the last shutdown.
func (a *app) lastShutdown(ctx context.Context, c *api.Client, out *output) error {
	history, missing, fault, err := a.history(ctx, c)
	if err != nil {
		return err
	}
	answer := struct {
		Shutdown *journal.Record `json:"shutdown"`
		Pods     []endedPod      `json:"pods"`
		// Cancelled is a later shutdown that was cancelled.
		Cancelled *journal.Record `json:"calledOff,omitempty"`
		// Drained is the last manual drain since the previous boot.
		Drained *journal.Record `json:"drained,omitempty"`
		// Restarts has the restart state of containers that shutdowns stopped.
		Restarts []journal.Restart `json:"restarts,omitempty"`
		// NotStarted names the containers that should run by their restart policy, and were not
		// started since the boot.
		NotStarted []string `json:"notStarted,omitempty"`
	}{history.Last, []endedPod{}, history.Cancelled, history.Drained, history.Restarts, missing}
	if last := history.Last; last != nil {
		for _, p := range last.Pods {
			answer.Pods = append(answer.Pods, endedPod{p, last.PodStatus(p)})
		}
	}
	show := func(t *table) {
		printShutdowns(t, history)
		if len(missing) > 0 {
			t.line("")
			for _, line := range wrap("not started since boot, despite their restart policy: "+strings.Join(missing, ", "), screenWidth) {
				t.line("%s", line)
			}
		}
	}
	if err := out.print(answer, show); err != nil {
		return err
	}
	return fault
}

// endedPod is a pod of the last shutdown, with the status of a v1.Pod.
type endedPod struct {
	journal.PodRecord
	Status journal.PodStatus `json:"status"`
}

// printShutdowns prints the last shutdown, a later cancelled one, and a manual drain.
func printShutdowns(t *table, history journal.History) {
	var ofLast, ofCancelled, ofDrained []journal.Restart
	for _, r := range history.Restarts {
		if r.Drained {
			ofDrained = append(ofDrained, r)
		} else {
			ofLast = append(ofLast, r)
		}
	}
	if called := history.Cancelled; called != nil { // a later shutdown that was cancelled
		all := ofLast
		ofLast = nil
		for _, r := range all {
			if r.AskedAt.Before(called.StartedAt) {
				ofLast = append(ofLast, r)
			} else {
				ofCancelled = append(ofCancelled, r)
			}
		}
	}
	if history.Last == nil {
		t.line("no shutdown recorded")
	} else {
		printRecord(t, *history.Last, ofLast)
	}
	if history.Cancelled != nil {
		t.line("")
		printRecord(t, *history.Cancelled, ofCancelled)
	}
	if history.Drained != nil {
		t.line("")
		printRecord(t, *history.Drained, ofDrained)
		printEarlier(t, *history.Drained)
	}
}

// printEarlier names the pods that earlier drains of the same maintenance period stopped.
func printEarlier(t *table, r journal.Record) {
	var names []string
	for _, p := range r.Earlier {
		names = append(names, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	t.line("")
	for _, line := range wrap("stopped by earlier drains of this maintenance: "+strings.Join(slices.Compact(names), ", "), screenWidth) {
		t.line("%s", line)
	}
}

func printRecord(t *table, r journal.Record, restarts []journal.Restart) {
	t.line("%s", describeRecord(r))
	if len(r.Pods) == 0 {
		return
	}
	t.line("")
	t.row("NAMESPACE", "POD", "STATUS", "PHASE", "GRACE", "OUTCOME", "AFTER", "TOOK", "NOTE")
	for _, p := range r.Pods {
		after, took := "", ""
		if !p.StartedAt.IsZero() {
			after = p.StartedAt.Sub(r.StartedAt).Round(time.Millisecond).String()
			if !p.FinishedAt.IsZero() {
				took = p.FinishedAt.Sub(p.StartedAt).Round(time.Millisecond).String()
			}
		}
		status, note := r.PodStatus(p), podNote(p)
		if note == "" && status.Reason != journal.ReasonTerminated && status.Phase != corev1.PodSucceeded {
			note = status.Message
		}
		note = joined(waited(p), note, limits(p), restartNote(p, restarts))
		phase := string(status.Phase)
		if status.Reason == journal.ReasonTerminated {
			phase += " (" + status.Reason + ")"
		}
		grace := ""
		if p.Phase != "" {
			grace = p.Grace.Duration.Round(100 * time.Millisecond).String() // the grace period that was left when the stop began
		}
		t.row(p.Namespace, p.Name, phase, p.Phase, grace, string(p.Outcome), after, took, note)
	}
}

// podNote returns which containers did not stop, or why they were killed.
func podNote(p journal.PodRecord) string {
	switch {
	case len(p.Stuck) > 0:
	case p.Error == "" && p.Outcome == journal.Stopped && p.StartedAt.IsZero() && !p.FinishedAt.IsZero():
		return "ended by itself before its phase"
	case p.Error == "" && p.Outcome == journal.Killed && len(p.Limits) == 0:
		return fmt.Sprintf("did not end within its grace period of %s", p.Grace.Duration)
	default:
		return p.Error
	}
	return strings.TrimSuffix("did not stop: "+strings.Join(p.Stuck, ", ")+"; "+p.Error, "; ")
}

// waited returns what the stop signal of a pod waited for.
func waited(p journal.PodRecord) string {
	if len(p.After) == 0 {
		return ""
	}
	return "waited for " + strings.Join(p.After, " and ")
}

// limits returns why containers of a pod got less grace than they request.
func limits(p journal.PodRecord) string {
	var parts []string
	for _, l := range p.Limits {
		parts = append(parts, l.String())
	}
	return joined(parts...)
}

// joined joins the texts that are not empty.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), "; ")
}

// describeRecord describes a shutdown in one line.
func describeRecord(r journal.Record) string {
	if r.Trigger == journal.TriggerUnknown && !r.Graceful {
		pods, asOf := "no running pods known", ""
		if len(r.Pods) > 0 {
			pods = count(len(r.Pods), "pod") + " cut off"
		}
		if !r.AsOf.IsZero() {
			asOf = "; pods as of " + r.AsOf.UTC().Format(time.RFC3339)
		}
		return fmt.Sprintf("NOT graceful, %s: %s, as in a power cut or a forced reboot%s", pods, r.Error, asOf)
	}
	s := shutdownTitle(r)
	if !r.StartedAt.IsZero() {
		s += " " + r.StartedAt.UTC().Format(time.RFC3339)
	}
	killed := r.Killed()
	undone := !r.UndoneAt.IsZero() && !r.CancelledAt.IsZero()
	cancelled := !r.CancelledAt.IsZero() && (!undone || r.FinishedAt.IsZero())
	switch {
	case r.Graceful && killed > 0:
		s += fmt.Sprintf(", %d of %s KILLED", killed, count(len(r.Pods), "pod"))
	case r.Graceful:
		s += ", graceful, " + count(len(r.Pods), "pod")
	case cancelled && r.Error != "": // interrupted, and undone after the boot
		s += ", NOT finished, " + count(len(r.Pods), "pod") + outcomes(r)
	case cancelled:
		s += ", cancelled, " + count(len(r.Pods), "pod") + outcomes(r)
	default:
		s += ", NOT graceful, " + count(len(r.Pods), "pod") + outcomes(r)
	}
	if !r.StartedAt.IsZero() && !r.FinishedAt.IsZero() {
		s += fmt.Sprintf(", took %s", r.FinishedAt.Sub(r.StartedAt).Round(time.Millisecond))
	}
	if undone {
		s += ", undone"
	}
	if first := r.First(); first != "" {
		s += "; " + first
	}
	if r.Shortened != nil {
		s += "; " + r.Shortened.String()
	}
	if r.Error != "" {
		s += ": " + r.Error
	}
	return s
}

// outcomes counts the pods that were killed or left running; empty if there are none.
func outcomes(r journal.Record) string {
	counts := map[journal.Outcome]int{}
	for _, p := range r.Pods {
		counts[p.Outcome]++
	}
	var parts []string
	for _, o := range []journal.Outcome{journal.Killed, journal.Left} {
		if n := counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// shutdownTitle returns the kind of a shutdown, if it is known.
func shutdownTitle(r journal.Record) string {
	switch {
	case r.Kind != "":
		return r.Kind
	case r.Cause != "":
		return "drain for " + r.Cause
	case r.Trigger == journal.TriggerServiceStop:
		return "shutdown or reboot without logind notification"
	case r.Trigger == journal.TriggerManual, r.Trigger == journal.TriggerManualAll:
		return "manual drain"
	case r.Trigger == journal.TriggerUnknown:
		return "end of a boot"
	case r.Trigger == journal.TriggerShutdown:
		return "shutdown or reboot"
	}
	return string(r.Trigger)
}
