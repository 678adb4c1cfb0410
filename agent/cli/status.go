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
	"hostler.io/hostler/shutdown"
)

// watchInterval is how often `hostler status --watch` draws anew.
const watchInterval = 2 * time.Second

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	cmd := a.reader("status", "Show on one screen how the host is", func(ctx context.Context, c *api.Client, out *output) error {
		if !watch {
			s, err := c.Status(ctx)
			if err != nil {
				return err
			}
			return out.print(s, func(t *table) { printStatus(t, out, s) })
		}
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			s, err := c.Status(ctx)
			if err != nil {
				return err
			}
			if a.terminal() {
				fmt.Fprint(a.Stdout, "\x1b[H\x1b[2J")
			}
			if err := out.print(s, func(t *table) { printStatus(t, out, s) }); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "draw anew every two seconds until interrupted")
	return cmd
}

// printStatus puts the verdict first, then what is wrong, then the rest.
func printStatus(t *table, out *output, s api.Status) {
	t.line("%s", verdict(out, s))
	for _, w := range worries(out, s) {
		for i, line := range wrap(w, 76) {
			if i > 0 {
				line = "  " + line
			}
			t.line("  %s", line)
		}
	}
	t.line("")
	for _, l := range [][2]string{
		{"control plane", controlPlane(s)},
		{"lease", lease(out, s)},
		{"addresses", addresses(s)},
		{"capacity", capacity(s)},
		{"runtimes", runtimes(s)},
		{"shutdown", guard(s)},
		{"last shutdown", lastRecord(s)},
		{"images", images(out, s)},
		{"containers", containers(out, s)},
		{"loops", loops(s)},
	} {
		t.row(l[0], l[1])
	}
	if s.Node != nil {
		t.line("")
		t.row("CONDITION", "STATUS", "SINCE", "REASON")
		for _, c := range s.Node.Status.Conditions {
			t.row(string(c.Type), string(c.Status), out.ago(c.LastTransitionTime.Time), c.Reason)
			if out.wide() {
				t.row("  " + c.Message)
			}
		}
	}
	if out.wide() {
		t.line("")
		t.row("LOOP", "HEALTHY", "LAST SUCCESS", "RESTARTS", "LAST ERROR")
		for _, l := range s.Loops {
			last := "-"
			if l.LastSuccess != nil {
				last = out.ago(*l.LastSuccess)
			}
			t.row(l.Name, fmt.Sprint(l.Healthy), last, fmt.Sprint(l.Restarts), l.LastError)
		}
	}
}

// verdict is the first line: the node, and whether it is ready.
func verdict(out *output, s api.Status) string {
	if s.Node == nil {
		return out.yellow("starting") + ": the host has not been looked at yet"
	}
	ready := condition(s.Node, corev1.NodeReady)
	word := out.yellow("Ready is unknown")
	switch {
	case ready != nil && ready.Status == corev1.ConditionTrue:
		word = out.green("Ready")
		if s.Node.Spec.Unschedulable {
			word += ",SchedulingDisabled"
		}
	case ready != nil && ready.Status == corev1.ConditionFalse:
		word = out.red("NOT READY")
	}
	line := s.Node.Name + " is " + word
	if ready != nil {
		line += " since " + out.ago(ready.LastTransitionTime.Time)
	}
	return strings.Replace(line, " ago", "", 1) + ", hostler " + s.Version
}

// worries lists what is wrong, the worst first, each on a line of its own.
func worries(out *output, s api.Status) []string {
	var lines []string
	if s.Node != nil {
		for _, c := range sorted(s.Node.Status.Conditions) {
			if bad(c) {
				lines = append(lines, out.red(string(c.Type)+"="+string(c.Status))+": "+c.Message)
			}
		}
	}
	if s.ControlPlane.LastError != "" {
		lines = append(lines, out.red("control plane")+": "+s.ControlPlane.LastError)
	}
	for _, l := range s.Loops {
		if !l.Healthy && !said(s, l, lines) {
			lines = append(lines, out.red("loop "+l.Name)+": "+firstLine(l.LastError))
		}
	}
	if s.State.Message != "" {
		lines = append(lines, out.yellow("state")+": "+s.State.Message)
	}
	for _, name := range []string{"node", "lease", "shutdown", "imageGC", "containerGC"} {
		if o, ok := s.Owners[name]; ok && o.Name != api.OwnerHostler {
			lines = append(lines, fmt.Sprintf("%s: left to %s (%s)", name, o.Name, o.Evidence))
		}
	}
	return lines
}

// said tells whether lines say already what ails a loop: that the control plane
// or a runtime does not answer is said once, not by each loop that asks it.
func said(s api.Status, l api.Loop, lines []string) bool {
	why := firstLine(l.LastError)
	if slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, why) }) {
		return true
	}
	if l.Name == "lease" || l.Name == "status" {
		return s.ControlPlane.LastError != ""
	}
	return slices.ContainsFunc(s.Runtimes, func(r api.Runtime) bool {
		return !r.Ready && strings.HasPrefix(why, "runtime "+r.Name+": ")
	})
}

// notCounted says that figures would be wrong, and why if that is not said above.
func notCounted(s api.Status, message string) string {
	if slices.ContainsFunc(s.Runtimes, func(r api.Runtime) bool { return !r.Ready }) {
		return "not all known"
	}
	return "not all known: " + firstLine(message)
}

// sorted puts Ready first: it is what all others are about.
func sorted(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	list := slices.Clone(conditions)
	slices.SortStableFunc(list, func(a, b corev1.NodeCondition) int {
		return rank(a) - rank(b)
	})
	return list
}

func rank(c corev1.NodeCondition) int {
	if c.Type == corev1.NodeReady {
		return 0
	}
	return 1
}

// bad tells whether a condition is not what a healthy host has.
func bad(c corev1.NodeCondition) bool {
	good := corev1.ConditionFalse
	if c.Type == corev1.NodeReady || c.Type == "hostler.io/ShutdownProtected" {
		good = corev1.ConditionTrue
	}
	return c.Status != good
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func controlPlane(s api.Status) string {
	line := s.ControlPlane.Type
	if s.ControlPlane.Endpoint != "" {
		line += " at " + s.ControlPlane.Endpoint
	}
	if !s.ControlPlane.Connected {
		line += ", not connected"
	}
	return line
}

func lease(out *output, s api.Status) string {
	if s.Lease == nil || s.Lease.Spec.RenewTime == nil {
		return "none yet"
	}
	line := "renewed " + out.ago(s.Lease.Spec.RenewTime.Time)
	if d := s.Lease.Spec.LeaseDurationSeconds; d != nil {
		line += fmt.Sprintf(", good for %ds", *d)
	}
	return line
}

func addresses(s api.Status) string {
	if s.Node == nil {
		return ""
	}
	var parts []string
	for _, a := range s.Node.Status.Addresses {
		parts = append(parts, fmt.Sprintf("%s %s", a.Address, a.Type))
	}
	return strings.Join(parts, ", ")
}

func capacity(s api.Status) string {
	if s.Node == nil {
		return ""
	}
	c, a := s.Node.Status.Capacity, s.Node.Status.Allocatable
	return fmt.Sprintf("%s CPUs, %s memory, %s disk, %s pods; allocatable %s, %s, %s",
		c.Cpu(), size(c.Memory().Value()), size(c.StorageEphemeral().Value()), c.Pods(),
		a.Cpu(), size(a.Memory().Value()), size(a.StorageEphemeral().Value()))
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
	if len(parts) == 0 {
		return "none found"
	}
	return strings.Join(parts, ", ")
}

func guard(s api.Status) string {
	g := s.Shutdown
	line := g.State.String()
	if g.State != shutdown.Disarmed {
		line += fmt.Sprintf(", %s for pods", g.GracePeriod.Duration)
		if g.GracePeriodCriticalPods.Duration > 0 {
			line += fmt.Sprintf(", the last %s for critical ones", g.GracePeriodCriticalPods.Duration)
		}
		if g.InhibitDelayMax.Duration > 0 {
			line += fmt.Sprintf("; logind grants %s", g.InhibitDelayMax.Duration)
		}
		return line
	}
	return line + ", see above"
}

func lastRecord(s api.Status) string {
	if s.Shutdown.Last == nil {
		return "none known of"
	}
	return describeRecord(*s.Shutdown.Last)
}

func images(out *output, s api.Status) string {
	g := s.ImageGC
	line := fmt.Sprintf("%d, %d unused", g.Images, g.Unused)
	if g.Message != "" {
		line = notCounted(s, g.Message)
	}
	for _, fs := range g.Filesystems {
		line += fmt.Sprintf("; %s %d%% used (collects at %d%%)", fs.Mountpoint, fs.UsedPercent, g.HighThresholdPercent)
	}
	if r := g.LastRun; r != nil && r.Removed > 0 {
		line += fmt.Sprintf("; %s removed %d and freed %s", out.ago(r.StartedAt), r.Removed, size(r.FreedBytes))
	}
	return line
}

func containers(out *output, s api.Status) string {
	g := s.ContainerGC
	line := fmt.Sprintf("%d, %d dead", g.Containers, g.Dead)
	if g.Message != "" {
		line = notCounted(s, g.Message)
	}
	if r := g.LastRun; r != nil && r.Removed > 0 {
		line += fmt.Sprintf("; %s removed %d", out.ago(r.StartedAt), r.Removed)
	}
	return line
}

func loops(s api.Status) string {
	sick := 0
	for _, l := range s.Loops {
		if !l.Healthy {
			sick++
		}
	}
	if sick == 0 {
		return fmt.Sprintf("all %d healthy", len(s.Loops))
	}
	return fmt.Sprintf("%d of %d not healthy, see -o wide", sick, len(s.Loops))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// wrap breaks text into lines of at most width columns, at blanks where it can.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
