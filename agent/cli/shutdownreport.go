package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/timeline"
)

func (a *app) shutdownReport() *cobra.Command {
	var svg bool
	cmd := a.reader("report", "Draw a timeline of the last shutdown", func(ctx context.Context, c *api.Client, out *output) error {
		history, _, fault, err := a.history(ctx, c)
		if err != nil {
			return err
		}
		show := func() error { return out.print(history.Last, func(t *table) { printTimelines(t, history) }) }
		if svg {
			show = func() error { return drawShutdown(out, history) }
		}
		if err := show(); err != nil {
			return err
		}
		return fault
	})
	cmd.Long = `Draw a timeline of the last shutdown: when each pod was sent the stop signal and
how long it took to stop (#). Dots are the rest of its grace period. If no agent
answers, root reads the record from the state directory. -o json prints the
record.`
	cmd.Example = "  hostler shutdown report --svg >shutdown.svg"
	cmd.Flags().BoolVar(&svg, "svg", false, "print an SVG image, for a browser")
	cmd.MarkFlagsMutuallyExclusive("svg", "output")
	return cmd
}

// errNothingToDraw also covers a boot that ended without a drain, because no stop signal was sent
// then.
var errNothingToDraw = errors.New("no shutdown recorded in which pods were sent the stop signal\nhint: run `hostler ps --last-shutdown` to see what is known of the last one")

// drawShutdown draws the last shutdown. If an earlier drain had stopped all pods, it draws that
// drain.
func drawShutdown(out *output, history journal.History) error {
	r := history.Last
	if history.Drained != nil && (r == nil || history.DrainedBefore() && len(r.Pods) == 0) {
		r = history.Drained
	}
	if r == nil || r.StartedAt.IsZero() {
		return errNothingToDraw
	}
	return timeline.New(*r).SVG(out.w, describeRecord(*r))
}

func printTimelines(t *table, history journal.History) {
	if history.Last == nil {
		t.line("no shutdown recorded")
	} else {
		printTimeline(t, *history.Last)
	}
	if history.Drained != nil {
		t.line("")
		printTimeline(t, *history.Drained)
	}
}

func printTimeline(t *table, r journal.Record) {
	for _, line := range wrap(describeRecord(r), screenWidth) {
		t.line("%s", line)
	}
	if r.StartedAt.IsZero() || len(r.Pods)+len(r.StoppedFirst) == 0 {
		return // no stop signal was sent
	}
	t.line("")
	for _, line := range timeline.New(r).Text(screenWidth) {
		t.line("%s", line)
	}
}
