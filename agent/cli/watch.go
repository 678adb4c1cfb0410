package cli

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

const (
	// watchInterval is how often a screen is drawn anew that a person watches.
	watchInterval = 2 * time.Second
	// watchShare is how much longer the pauses are, at the least, than it takes to ask:
	// who watches a large fleet is to cost its control plane a tenth of the time.
	watchShare = 9
)

// redraw draws until ctx ends, which is how a watch ends, or drawing fails. On a terminal
// the screen before stays until there is another.
func (a *app) redraw(ctx context.Context, out *output, draw func(context.Context) error) error {
	var screen bytes.Buffer
	if a.terminal() {
		out.w = &screen
	}
	for between := ""; ; {
		started := time.Now()
		if !a.terminal() {
			fmt.Fprint(a.Stdout, between)
		}
		err := draw(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case a.terminal():
			fmt.Fprint(a.Stdout, between, screen.String())
			screen.Reset()
			between = "\x1b[H\x1b[2J"
		case out.format == "yaml":
			between = "---\n"
		case out.format != "json": // whose values need nothing between them
			between = "\n"
		}
		select {
		case <-time.After(max(watchInterval, watchShare*time.Since(started))):
		case <-ctx.Done():
			return nil
		}
	}
}
