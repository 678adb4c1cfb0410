package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/gc"
)

func (a *app) imagesCommand() *cobra.Command {
	return a.reader("images", "List images: size, last use, and which are next to go", func(ctx context.Context, c *api.Client, out *output) error {
		list, err := c.Images(ctx)
		if err != nil {
			return err
		}
		return out.print(list, func(t *table) {
			warn(t, list.Message)
			printImages(t, out, list.Images, false)
		})
	})
}

// printImages writes images in the order of a plan. Those that may go come
// first, and get their place in the queue unless the plan itself is shown.
func printImages(t *table, out *output, images []gc.ImageDecision, planned bool) {
	if len(images) == 0 {
		t.line("no images")
		return
	}
	header := []string{"IMAGE", "ID", "SIZE", "LAST USED", "ACTION", "REASON"}
	if !planned {
		header[4], header[5] = "NEXT TO GO", "WHY"
	}
	if out.wide() {
		header = append(header, "FIRST SEEN", "RUNTIME", "FILESYSTEM")
	}
	t.row(header...)
	place := 0
	for _, img := range images {
		what, why := string(img.Action), string(img.Reason)
		if !planned {
			what = "kept"
			if img.Action == gc.Remove || img.Reason == gc.BelowThreshold {
				place++
				what = fmt.Sprintf("%d", place)
			}
		}
		if img.Detail != "" {
			why += ": " + img.Detail
		}
		row := []string{imageName(img.Names, out.wide()), short(img.ID), size(img.SizeBytes), seen(out, img.LastUsed), what, why}
		if out.wide() {
			row = append(row, seen(out, img.FirstSeen), img.Runtime, img.Filesystem)
		}
		t.row(row...)
	}
}

// imageName is the first name, or all of them.
func imageName(names []string, all bool) string {
	switch {
	case len(names) == 0:
		return "<none>"
	case all:
		return strings.Join(names, ",")
	}
	return names[0]
}

// seen is when something was seen, if it was.
func seen(out *output, at time.Time) string {
	if at.IsZero() {
		return "not seen"
	}
	return out.ago(at)
}
