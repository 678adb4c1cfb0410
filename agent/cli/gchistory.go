package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/history"
)

func (a *app) gcHistory() *cobra.Command {
	var images, containers bool
	cmd := a.reader("history", "Show past collections: what was requested, removed and freed", func(ctx context.Context, c *api.Client, out *output) error {
		h, err := c.CollectHistory(ctx)
		if err != nil {
			return err
		}
		if images != containers {
			h.Runs = slices.DeleteFunc(h.Runs, func(r history.Run) bool { return (r.Kind == history.Images) != images })
		}
		return out.print(h, func(t *table) { printHistory(t, out, h.Runs) })
	})
	cmd.Flags().BoolVar(&images, "images", false, "only collections of images")
	cmd.Flags().BoolVar(&containers, "containers", false, "only collections of dead containers")
	return cmd
}

func printHistory(t *table, out *output, runs []history.Run) {
	if len(runs) == 0 {
		t.line("no collection has removed anything yet; to see what one would remove, run `hostler gc plan`")
		return
	}
	header := []string{"STARTED", "OF", "TRIGGER", "REMOVED", "REQUESTED", "ESTIMATED", "FREED", "TOOK", "ENDED"}
	if out.wide() {
		header = append(header, "INODES REQUESTED", "INODES FREED", "BY REASON", "FILESYSTEMS")
	}
	t.row(header...)
	for _, r := range runs {
		// Inodes are printed only if they triggered the run. Wide output has columns for them.
		amount := func(bytes, inodes uint64) string {
			switch {
			case r.RequestedInodes == 0 || out.wide():
				return size(bytes)
			case r.RequestedBytes == 0:
				return fmt.Sprintf("%d inodes", inodes)
			}
			return fmt.Sprintf("%s, %d inodes", size(bytes), inodes)
		}
		ended := r.Ended
		if len(r.Errors) > 0 {
			ended += ", " + count(len(r.Errors), "error")
		}
		row := []string{
			out.ago(r.StartedAt), r.Kind, r.Trigger, removedInAll(r.Summary),
			amount(r.RequestedBytes, r.RequestedInodes), amount(r.EstimatedBytes, r.EstimatedInodes), amount(r.FreedBytes, r.FreedInodes), r.Duration.Round(time.Millisecond).String(), ended,
		}
		if out.wide() {
			row = append(row, fmt.Sprint(r.RequestedInodes), fmt.Sprint(r.FreedInodes), byReason(r.RemovedBy), strings.Join(r.Filesystems, ", "))
		}
		t.row(row...)
	}
	if out.wide() {
		printProblems(t, out, runs)
	}
}

// printProblems prints each error and warning once, with its latest run: consecutive runs often
// have the same ones.
func printProblems(t *table, out *output, runs []history.Run) {
	var printed []string
	for _, r := range runs {
		for _, problem := range append(slices.Clone(r.Errors), r.Warnings...) {
			if !slices.Contains(printed, problem) {
				printed = append(printed, problem)
				t.line("")
				t.line("%s, %s: %s", out.ago(r.StartedAt), r.Kind, strings.ReplaceAll(problem, "; ", "\n  "))
			}
		}
	}
}

// byReason returns counts by reason: 3 lru, 1 max-age.
func byReason(counts map[gc.Reason]int) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return strings.Join(parts, ", ")
}
