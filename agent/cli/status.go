package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/selfdrain"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/reboots"
)

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	cmd := a.reader("status", "Show the state of this host on one screen", func(ctx context.Context, c *api.Client, out *output) error {
		if watch {
			return a.redraw(ctx, out, func(ctx context.Context) error {
				_, err := a.showStatus(ctx, c, out)
				return err
			})
		}
		leaseEnded, err := a.showStatus(ctx, c, out)
		if err == nil && leaseEnded {
			return silentError{}
		}
		return err
	})
	cmd.Long = `Show the state of this host on one screen.

Exits 0 even if the host is not Ready; 1 if its lease has expired.`
	cmd.Flags().BoolVar(&watch, "watch", false, "refresh every two seconds until interrupted")
	return cmd
}

// showStatus prints the status, and reports whether the Lease has expired, which sets the exit
// code. A watch continues.
func (a *app) showStatus(ctx context.Context, c *api.Client, out *output) (leaseEnded bool, err error) {
	s, err := c.Status(ctx)
	if err != nil {
		return false, err
	}
	return s.ControlPlane.Overdue != "", out.print(s, func(t *table) { printStatus(t, out, s) })
}

// printStatus prints the verdict, the problems, and then the rest without repeating them.
func printStatus(t *table, out *output, s api.Status) {
	out.indented(t, "", headline(out, s))
	wrong := problems(out, s)
	for _, w := range wrong {
		w.print(t, out)
	}
	t.line("")
	for _, l := range [][2]string{
		{"lease", lease(out, s)},
		{"control plane", controlPlane(s)},
		{"runtimes", runtimes(s)},
		{"cordon", cordon(out, s)},
		{"taints", ownTaints(s)},
		{"shutdown", guard(out, s, wrong)},
		{"scheduled", scheduled(out, s)},
		{"drain", drains(out, s)},
		{"reboot", rebootLine(out, s)},
		{"last boot", lastBoot(out, s)},
		{"last shutdown", lastRecord(out, s)},
		{"restarted", restarts(out, s)},
		{"not started", notStarted(out, s)},
		{"not restarted", notRestarted(out, s)},
		{"images", images(out, s)},
		{"containers", containers(out, s)},
		{"on request", onRequest(s)},
		{"conditions", conditions(out, s)},
		{"network", served(out, s)},
		{"addresses", addresses(s)},
		{"capacity", resources(s, capacityOf)},
		{"allocatable", resources(s, allocatableOf)},
		{"machine", machine(out, s)},
		{"left to others", others(s)},
		{"agent", loops(s)},
	} {
		out.field(t, l[0], l[1])
	}
	if out.wide() {
		printConditions(t, out, s)
		printAddresses(t, s)
		printLoops(t, out, s)
	}
}

// labelWidth is the width of the longest label and the gap.
const labelWidth = len("left to others") + 3

// field writes a value with a label, or nothing if the value is empty. Lines are wrapped to 80
// columns, unless wide output was requested.
func (o *output) field(t *table, label, value string) {
	if value == "" {
		return
	}
	value = t.once(value)
	lines := strings.Split(value, "\n")
	if !o.wide() {
		lines = wrap(value, screenWidth-labelWidth)
	}
	for _, line := range lines {
		t.line("%-*s%s", labelWidth, label, line)
		label = ""
	}
}

func printLoops(t *table, out *output, s api.Status) {
	t.line("")
	t.row("LOOP", "HEALTHY", "LAST SUCCESS", "RESTARTS", "LAST ERROR")
	for _, l := range s.Loops {
		last := "-"
		if l.LastSuccess != nil {
			last = out.ago(*l.LastSuccess)
		}
		t.row(l.Name, fmt.Sprint(l.Healthy), last, fmt.Sprint(l.Restarts), t.cell(firstLine(l.LastError)))
	}
}

// served returns the network listeners, and how long the certificate is valid.
func served(out *output, s api.Status) string {
	n := s.Network
	if n == nil {
		return ""
	}
	var what []string
	if n.Listen != "" {
		what = append(what, "the API at "+n.Listen)
	}
	if n.Metrics != "" {
		what = append(what, "metrics at "+n.Metrics)
	}
	line := strings.Join(what, ", ") + " over TLS"
	switch {
	case n.Ends == nil:
		line += ", " + out.red("without a certificate")
	case !n.Ends.After(out.now()):
		line += ", certificate " + out.red("expired") + " " + out.ago(*n.Ends)
	default:
		line += ", certificate expires in " + age(n.Ends.Sub(out.now()))
	}
	if n.Message != "" {
		line += "; " + n.Message
	}
	return line
}

func lease(out *output, s api.Status) string {
	if !mine(s, "lease") {
		return "" // an older agent does not report it
	}
	if s.ControlPlane.Paused != "" {
		return "paused, see above"
	}
	if s.Lease == nil || s.Lease.Spec.RenewTime == nil {
		return "none stored yet"
	}
	line := "renewed " + out.ago(s.Lease.Spec.RenewTime.Time)
	if d := s.Lease.Spec.LeaseDurationSeconds; d != nil {
		line += fmt.Sprintf(", valid for %ds", *d)
	}
	if p := s.LeasePace; p != nil && p.By != "" {
		line += fmt.Sprintf("; %s requests %s", p.By, p.Duration.Duration)
	}
	if s.ControlPlane.Overdue != "" {
		line += ", " + out.red("EXPIRED")
	}
	return line
}

func controlPlane(s api.Status) string {
	line := s.ControlPlane.Type
	if s.ControlPlane.Endpoint != "" {
		line += " at " + s.ControlPlane.Endpoint
	}
	switch {
	case !mine(s, "node") && s.ControlPlane.Type == "embedded":
		line += ", events only"
	case !mine(s, "node"):
		line += ", only events and hostler's own conditions"
	case s.ControlPlane.Paused != "":
		line += ", paused, see above"
	case s.Node == nil: // not written yet
	case !s.ControlPlane.Connected:
		line += ", NOT CONNECTED"
	}
	return line
}

func runtimes(s api.Status) string {
	var parts []string
	for _, r := range s.Runtimes {
		state := "ready"
		if !r.Ready {
			state = "NOT READY"
		}
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s", r.Name, r.Version))+" "+state)
	}
	switch {
	case len(parts) == 0 && !checked(s):
		return "not checked yet"
	case len(parts) == 0:
		return "none found"
	}
	return strings.Join(parts, ", ")
}

// checked reports whether hostler has searched for runtimes since the start. Before that, Ready
// keeps its status from before the restart of the agent.
func checked(s api.Status) bool {
	if s.Node == nil {
		return false
	}
	ready := controlplane.ConditionOf(s.Node, corev1.NodeReady)
	return ready == nil || ready.Status != corev1.ConditionTrue && ready.Reason != status.ReasonStarting
}

func guard(out *output, s api.Status, wrong []problem) string {
	g := s.Shutdown
	switch g.State {
	case shutdown.Armed:
		granted := g.InhibitDelayMax.Duration
		if short := g.InhibitDelayShortage != "" || granted > 0 && granted < g.InhibitDelayNeeded.Duration; short {
			grants := "does not grant the"
			if granted > 0 {
				grants = fmt.Sprintf("grants only %s of the", granted)
			}
			line := fmt.Sprintf("%s, but NOT protected: logind %s %s needed", g.State, grants, g.InhibitDelayNeeded.Duration)
			if covered(wrong, api.CauseShutdown) {
				return line + ", see above"
			}
			return strings.TrimSuffix(line+"; "+g.InhibitDelayShortage, "; ") // the condition is updated in a moment
		}
		line := g.State.String() + ", "
		if covered(wrong, api.CauseShutdown) {
			line += "but NOT all pods are protected, see above; "
		}
		line += g.GracePeriod.Duration.String() + " for pods"
		if g.GracePeriodCriticalPods.Duration > 0 {
			line += fmt.Sprintf(", the last %s for critical pods", g.GracePeriodCriticalPods.Duration)
		}
		if len(g.Untimed) > 0 {
			line += ", NONE for phase " + strings.Join(g.Untimed, ", ") + ": its pods may be killed at once"
		}
		if granted > 0 {
			line += "; logind grants " + doctor.Span(granted)
		}
		return line
	case shutdown.Draining, shutdown.Released:
		line := g.State.String()
		if g.Current != nil && g.Current.Kind != "" {
			line += " for " + g.Current.Kind
		}
		if g.Current != nil {
			line += fmt.Sprintf(", %d of %s stopped", stopped(*g.Current), count(len(g.Current.Pods), "pod"))
		}
		if left := g.Deadline.Sub(out.now()); g.State == shutdown.Draining && left > 0 {
			line += fmt.Sprintf(", the shutdown continues in %s at the latest", left.Round(time.Second))
		}
		return line
	case shutdown.Delegated:
		return g.State.String() + " to " + g.Reason
	}
	if covered(wrong, api.CauseShutdown) {
		return g.State.String() + ", see above"
	}
	return g.State.String() + ": " + g.Reason
}

// scheduled returns the shutdown that logind begins later.
func scheduled(out *output, s api.Status) string {
	next := s.ScheduledShutdown
	if next == nil {
		return ""
	}
	return out.yellow(fmt.Sprintf("%s at %s, in %s; to cancel it, run `shutdown -c`", next.Kind, next.At.Format("2006-01-02 15:04 MST"), age(next.At.Sub(out.now()))))
}

// cordon returns who cordoned the Node, and whether the control plane has stored it.
func cordon(out *output, s api.Status) string {
	closed, c := s.Node != nil && s.Node.Spec.Unschedulable, s.Cordon
	next := "; to open it, run `hostler uncordon`"
	if s.Reboot != nil && s.Reboot.Request != nil && s.Reboot.Step.Running() {
		next = "" // the reboot ends it
	}
	switch {
	case c != nil && c.Pending:
		did := "opened"
		if c.Unschedulable {
			did = "closed"
		}
		return out.yellow(fmt.Sprintf("%s %s the node to new pods %s; not yet written to the control plane", c.By, did, out.ago(c.At)))
	case closed && c != nil && c.Unschedulable:
		return fmt.Sprintf("closed to new pods by %s %s%s", c.By, out.ago(c.At), next)
	case closed:
		return "closed to new pods" + next
	}
	return ""
}

// drains returns the running drain, the automatic drains that are scheduled, and what still runs
// after the last one.
func drains(out *output, s api.Status) string {
	var parts []string
	if running := manualDrain(s); running != "" {
		parts = append(parts, running)
	}
	for _, d := range s.SelfDrains {
		at := d.DrainsAt.Format("15:04:05 MST")
		switch left := d.DrainsAt.Sub(out.now()); {
		case d.State == selfdrain.Drained:
			parts = append(parts, fmt.Sprintf("pods were stopped (%s); hostler does not start them again", d.Cause))
		case d.State == selfdrain.Draining:
			parts = append(parts, out.yellow("to end it, "+d.Hint))
		case left > 0:
			parts = append(parts, out.yellow(fmt.Sprintf("at %s, in %s: %s for %s; to prevent it, %s", at, age(left), d.Cause, age(out.now().Sub(d.Since)), d.Hint)))
		default:
			cause := strings.TrimSuffix(d.Cause+"; it does not begin: "+d.Message, "; it does not begin: ")
			parts = append(parts, out.yellow(fmt.Sprintf("due since %s: %s; to prevent it, %s", at, cause, d.Hint)))
		}
	}
	r := ownDrain(s)
	switch {
	case len(parts) > 0 || r == nil:
	case !r.CancelledAt.IsZero() || !r.UndoneAt.IsZero():
		if down := staysDown(s, r); down > 0 {
			parts = append(parts, fmt.Sprintf("withdrawn, its cause ended; %s stopped, which hostler cannot start: see `hostler ps --last-shutdown`", count(down, "pod")))
		}
	case out.now().Sub(r.StartedAt) < fresh:
		parts = append(parts, fmt.Sprintf("the host was drained %s for %s; hostler does not start its pods again: see `hostler gc plan`, reason drained", out.ago(r.StartedAt), r.Cause))
	}
	return strings.Join(parts, "; ")
}

// ownDrain returns the last drain that hostler began itself, if it has ended in this boot; else nil.
func ownDrain(s api.Status) *journal.Record {
	history := s.Shutdown.History()
	if r := history.Drained; r != nil && r.Trigger.ByHost() && s.Shutdown.ManualDrain == nil && !history.DrainedBefore() {
		return r
	}
	return nil
}

// staysDown counts the pods that a withdrawn drain has stopped and that hostler cannot start again.
func staysDown(s api.Status, withdrawn *journal.Record) (n int) {
	for _, p := range withdrawn.Pods {
		over := p.Outcome == journal.Stopped || p.Outcome == journal.Killed
		if over && !slices.ContainsFunc(s.Shutdown.Restarts, func(o journal.Restart) bool { return o.Runtime == p.Runtime && o.Pod == p.ID }) {
			n++
		}
	}
	return n
}

// manualDrain returns the progress of a manual drain. Critical pods that it leaves running are not
// counted.
func manualDrain(s api.Status) string {
	r := s.Shutdown.ManualDrain
	if r == nil {
		return ""
	}
	by := "started manually"
	if r.Cause != "" {
		by = "for " + r.Cause
	}
	return fmt.Sprintf("%s, %d of %s stopped", by, stopped(*r), count(maintenance.PodsToStop(*r), "pod"))
}

// stopped counts the pods of a drain that need no more work.
func stopped(r journal.Record) int {
	n := 0
	for _, p := range r.Pods {
		if p.Outcome == journal.Stopped || p.Outcome == journal.Killed {
			n++
		}
	}
	return n
}

// lastBoot returns when this boot began, whether the reboot was expected, and the count of earlier
// boots.
func lastBoot(out *output, s api.Status) string {
	b := s.Reboots
	if b.BootID == "" {
		return ""
	}
	line := out.ago(b.BootedAt)
	switch r := b.Last; {
	case r == nil:
	case r.Verdict == reboots.Unknown:
		line += ", " + r.By()
	case unexpected(out, s):
		line += ", unexpected, see above"
	default:
		line += ", " + string(r.Verdict) + ", " + r.By()
	}
	if b.Unexpected > 0 {
		line += fmt.Sprintf("; %s since %s", count(int(b.Unexpected), "unexpected reboot"), b.Since.UTC().Format(time.DateOnly))
	}
	return line
}

func lastRecord(out *output, s api.Status) string {
	line := "none recorded"
	if s.Shutdown.Last != nil {
		line = describeRecord(*s.Shutdown.Last)
	}
	if history := s.Shutdown.History(); history.DrainedBefore() {
		line += "; a drain before it stopped " + count(stopped(*history.Drained)+len(history.Drained.Earlier), "pod") + ", see `hostler ps --last-shutdown`"
	}
	if r := s.Shutdown.Cancelled; r != nil {
		line += fmt.Sprintf("; one was cancelled %s, see `hostler ps --last-shutdown`", out.ago(r.CancelledAt))
	}
	return line
}

func images(out *output, s api.Status) string {
	g := s.ImageGC
	if !someRuntimeReady(s) {
		return ""
	}
	line := fmt.Sprintf("%d, %d unused", g.Images, g.Unused)
	if g.Message != "" {
		line = "incomplete"
	}
	for _, fs := range g.Filesystems {
		if fs.Message != "" {
			line += fmt.Sprintf("; %s: %s", fs.Filesystem, fs.Message)
			continue
		}
		line += fmt.Sprintf("; %s is %d%% full", fs.Filesystem, fs.UsedPercent)
		if fs.InodesUsedPercent > fs.UsedPercent { // inodes are scarcer
			line += fmt.Sprintf(", inodes %d%%", fs.InodesUsedPercent)
		}
		switch {
		case !mine(s, "imageGC"):
		case g.OnRequest.Covers(fs.Runtimes):
			line += ", collected on request only"
		case g.HighThresholdPercent < gc.ThresholdOff:
			line += fmt.Sprintf(", collection starts at %d%%", g.HighThresholdPercent)
		}
	}
	if r := g.LastRun; r != nil && r.Removed > 0 {
		line += fmt.Sprintf("; last run %s: %s removed, %s freed", out.ago(r.StartedAt), removedInAll(*r), size(r.FreedBytes))
	}
	return line
}

func containers(out *output, s api.Status) string {
	g := s.ContainerGC
	if !someRuntimeReady(s) {
		return ""
	}
	line := fmt.Sprintf("%d, %d dead", g.Containers, g.Dead)
	if g.Message != "" {
		line = "incomplete"
	}
	if r := g.LastRun; r != nil && r.Removed > 0 {
		line += fmt.Sprintf("; last run %s: %s removed", out.ago(r.StartedAt), removedInAll(*r))
	}
	return line
}

// someRuntimeReady reports whether the numbers of images and containers are known.
func someRuntimeReady(s api.Status) bool {
	return slices.ContainsFunc(s.Runtimes, func(r api.Runtime) bool { return r.Ready })
}

// jobs are the jobs with an owner, in display order.
var jobs = [...]string{"node", "lease", "shutdown", "imageGC", "containerGC"}

func mine(s api.Status, job string) bool {
	o, known := s.Owners[job]
	return !known || o.Name == owner.Hostler
}

// others returns the jobs of other owners, with the evidence.
func others(s api.Status) string {
	var parts []string
	listed := map[owner.Owner]bool{}
	for _, job := range jobs {
		o := s.Owners[job]
		if mine(s, job) || listed[o] || job == "shutdown" && s.Shutdown.State == shutdown.Delegated {
			continue // the last one has its own line
		}
		listed[o] = true
		var same []string
		for _, j := range jobs {
			if s.Owners[j] == o {
				same = append(same, j)
			}
		}
		who := o.Evidence
		if o.Name != owner.None {
			who = fmt.Sprintf("%s (%s)", o.Name, o.Evidence)
		}
		parts = append(parts, strings.Join(same, ", ")+": "+who)
	}
	return strings.Join(parts, "; ")
}

func loops(s api.Status) string {
	var sick []string
	for _, l := range s.Loops {
		if !l.Healthy {
			sick = append(sick, l.Name)
		}
	}
	line := "hostler " + s.Version + ", "
	if len(sick) == 0 {
		return line + fmt.Sprintf("all %d loops healthy", len(s.Loops))
	}
	return line + fmt.Sprintf("%d of %d loops failing: %s", len(sick), len(s.Loops), strings.Join(sick, ", "))
}
