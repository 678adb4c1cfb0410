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
		story, fault, err := a.story(ctx, c)
		if err != nil {
			return err
		}
		show := func() error { return out.print(story.Last, func(t *table) { printTimeline(t, story.Last) }) }
		if svg {
			show = func() error { return drawShutdown(out, story.Last) }
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

// errNothingToDraw is for a boot that ended without a drain, too: nobody was asked then.
var errNothingToDraw = errors.New("no shutdown recorded in which pods were sent the stop signal\nhint: run `hostler ps --last-shutdown` to see what is known of the last one")

func drawShutdown(out *output, r *journal.Record) error {
	if r == nil || r.StartedAt.IsZero() {
		return errNothingToDraw
	}
	return timeline.New(*r).SVG(out.w, describeRecord(*r))
}

func printTimeline(t *table, r *journal.Record) {
	if r == nil {
		t.line("no shutdown recorded")
		return
	}
	for _, line := range wrap(describeRecord(*r), screenWidth) {
		t.line("%s", line)
	}
	if r.StartedAt.IsZero() {
		return // nobody was asked
	}
	t.line("")
	for _, line := range timeline.New(*r).Text(screenWidth) {
		t.line("%s", line)
	}
}
