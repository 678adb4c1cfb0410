package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
)

func (a *app) gcCommand() *cobra.Command {
	plan := a.collector("plan", "Show what a collection would remove now, and why", showPlan)
	plan.Long = `Show what a collection would remove now, and why.

Reasons: /usr/share/doc/hostler/docs/howto/disk-full.md`
	return group("gc", "Remove unused images and dead containers",
		plan,
		a.collector("run", "Run a collection now, as `gc plan` shows; needs root", a.collect),
		a.gcHistory(),
	)
}

// collector returns a reader with the flags that select what to collect.
func (a *app) collector(use, short string, run func(context.Context, *api.Client, *output, api.CollectRequest) error) *cobra.Command {
	var req api.CollectRequest
	cmd := a.reader(use, short, func(ctx context.Context, c *api.Client, out *output) error { return run(ctx, c, out, req) })
	cmd.Flags().BoolVar(&req.Images, "images", false, "only images")
	cmd.Flags().BoolVar(&req.Containers, "containers", false, "only dead containers, dead pods and logs of removed pods")
	cmd.Flags().BoolVar(&req.AllUnused, "all-unused", false, "remove all that is unused and unprotected, even with enough free space; excludes --target-percent")
	cmd.Flags().IntVar(&req.TargetPercent, "target-percent", 0, "remove images until at most `N` percent (1 to 100) of their filesystem are used; excludes --all-unused, and --containers without --images")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		switch targeted := cmd.Flags().Changed("target-percent"); {
		case targeted && req.AllUnused:
			return usageError("--all-unused and --target-percent exclude each other\nhint: use --all-unused to remove all unused images, or --target-percent to stop at a target")
		case targeted && req.Containers && !req.Images:
			return usageError("--target-percent applies to images, which --containers excludes\nhint: omit --containers, or add --images")
		case targeted && (req.TargetPercent < 1 || req.TargetPercent > 100):
			return usageError(fmt.Sprintf("--target-percent %d is not from 1 to 100\nhint: use 70 to collect until 70 percent are used", req.TargetPercent))
		}
		return nil
	}
	return cmd
}

func showPlan(ctx context.Context, c *api.Client, out *output, req api.CollectRequest) error {
	plan, err := c.CollectPlan(ctx, req)
	if err != nil {
		return err
	}
	return out.print(plan, func(t *table) { printPlan(t, out, plan, req.AllUnused) })
}

func printPlan(t *table, out *output, plan api.CollectPlan, allUnused bool) {
	warn(t, plan.Message)
	if len(plan.Filesystems)+len(plan.Images)+len(plan.Containers)+len(plan.Pods)+len(plan.Logs) == 0 {
		t.line("no runtime on this host has images or containers; to list the runtimes, run `hostler status`")
		return
	}
	for _, fs := range plan.Filesystems {
		t.line("%s", filesystem(fs.FilesystemStatus))
		t.line("  %s", toFree(fs, allUnused))
	}
	t.line("to remove: %s", toRemove(plan.Decisions))
	if len(plan.Images) > 0 {
		t.line("")
		printPlannedImages(t, out, plan.Images)
	}
	if len(plan.Containers) > 0 {
		t.line("")
		printContainers(t, out, plan.Containers)
	}
	if len(plan.Pods) > 0 {
		t.line("")
		printDeadPods(t, out, plan.Pods)
	}
	if len(plan.Logs) > 0 {
		t.line("")
		printLogs(t, out, plan.Logs)
	}
}

// toFree returns how much must be freed on a filesystem.
func toFree(fs gc.FilesystemDecision, allUnused bool) string {
	if allUnused {
		return "unused images without protection are removed, even with enough free space"
	}
	var parts []string
	if fs.BytesToFree > 0 {
		parts = append(parts, size(fs.BytesToFree))
	}
	if fs.InodesToFree > 0 {
		parts = append(parts, fmt.Sprintf("%d inodes", fs.InodesToFree))
	}
	switch {
	case fs.Message != "":
		return "nothing is collected here"
	case len(parts) == 0:
		return "nothing to free"
	}
	return "to free: " + strings.Join(parts, " and ")
}

// toRemove returns how much a plan removes.
func toRemove(d gc.Decisions) string {
	removed, bytes := make(map[string]int), uint64(0)
	for i := range d.Images {
		if d.Images[i].Action == gc.Remove {
			removed[runs.KindImage]++
			bytes += d.Images[i].SizeBytes
		}
	}
	for i := range d.Containers {
		if d.Containers[i].Action == gc.Remove {
			removed[runs.KindContainer]++
		}
	}
	for i := range d.Pods {
		if d.Pods[i].Action == gc.Remove {
			removed[runs.KindPod]++
		}
	}
	for i := range d.Logs {
		if d.Logs[i].Action == gc.Remove {
			removed[runs.KindLog]++
		}
	}
	parts := kinds(removed)
	if len(parts) == 0 {
		return "nothing"
	}
	if removed[runs.KindImage] > 0 {
		parts[0] += " (" + size(bytes) + ", as the runtime reports)"
	}
	return strings.Join(parts, ", ")
}

// filesystem describes a filesystem in one line.
func filesystem(fs gc.FilesystemStatus) string {
	where := fs.Runtimes
	if fs.Device != "" {
		where = append([]string{fs.Device}, where...)
	}
	s := fmt.Sprintf("%s (%s): ", fs.Filesystem, strings.Join(where, ", "))
	if fs.Message != "" {
		return s + fs.Message
	}
	s += fmt.Sprintf("%d%% of %s used", fs.UsedPercent, size(fs.CapacityBytes))
	if fs.InodesUsedPercent > 0 {
		s += fmt.Sprintf(", %d%% of inodes", fs.InodesUsedPercent)
	}
	return s
}

func (a *app) collect(ctx context.Context, c *api.Client, out *output, req api.CollectRequest) error {
	progress, done := a.progress(out)
	report, err := c.Collect(ctx, req, progress)
	done()
	if err != nil {
		return err
	}
	if err := out.print(report, func(t *table) {
		if a.terminal() { // elsewhere the progress has its own lines
			printRemoved(t, out, report.Removed)
		}
		printReport(t, report)
	}); err != nil {
		return err
	}
	if len(report.Errors)+len(report.Short) > 0 {
		return silentError{}
	}
	return nil
}

// progress prints each object. On a terminal it overwrites one line until done is called; otherwise
// each object has its own line. With JSON or YAML output it prints nothing.
func (a *app) progress(out *output) (show func(api.Step), done func()) {
	done = func() {}
	switch {
	case out.format == "json" || out.format == "yaml":
		return func(api.Step) {}, done
	case !a.terminal():
		return func(s api.Step) { fmt.Fprintln(a.Stdout, describeStep(s)) }, done
	}
	show = func(s api.Step) {
		if s.Waiting {
			a.showLine(describeStep(s))
			return
		}
		a.showLine(fmt.Sprintf("%d of %d  %.60s", s.Done, s.Total, describeStep(s)))
	}
	return show, func() { a.showLine("") }
}

// describeStep returns one line with the result of an object.
func describeStep(s api.Step) string {
	if s.Waiting {
		return "waiting for the running collection to finish"
	}
	name := imageName(s.Names, false)
	if s.Kind == runs.KindContainer {
		name = s.Pod + "/" + name
	}
	switch {
	case s.Error != "":
		return fmt.Sprintf("failed %s %s: %s", s.Kind, name, s.Error)
	case s.Action == gc.Keep:
		return fmt.Sprintf("kept %s %s: %s", s.Kind, name, s.Reason)
	}
	return fmt.Sprintf("removed %s %s: %s", s.Kind, name, s.Reason)
}

func printReport(t *table, r runs.Report) {
	images := r.Count(runs.KindImage)
	for _, e := range r.Errors {
		t.line("error: %s", e)
	}
	for _, w := range r.Warnings {
		t.line("warning: %s", strings.ReplaceAll(w, "; ", "\n  "))
	}
	t.line("removed %s in %s", removedWhat(r), r.Duration.Round(time.Millisecond))
	if len(r.Kept) > 0 {
		t.line("kept: %s", byReason(r.Kept))
	}
	if images > 0 || r.RequestedBytes > 0 || r.RequestedInodes > 0 {
		on := ""
		if len(r.Filesystems) > 0 {
			on = " on " + strings.Join(r.Filesystems, " and ")
		}
		t.line("freed %s%s (measured); requested %s; estimated %s", size(r.FreedBytes), on, size(r.RequestedBytes), size(r.EstimatedBytes))
	}
	if r.RequestedInodes > 0 {
		t.line("freed %d inodes (measured); requested %d; estimated %d", r.FreedInodes, r.RequestedInodes, r.EstimatedInodes)
	}
	if r.Ended != "" {
		t.line("ended: %s", r.Ended)
	}
}
