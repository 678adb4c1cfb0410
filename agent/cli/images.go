package cli

import (
	"context"
	"strconv"
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
			printImages(t, out, list.Images)
		})
	})
}

// printImages writes images in the order in which they would go, those that stay
// last.
func printImages(t *table, out *output, images []api.Image) {
	if len(images) == 0 {
		t.line("no images")
		return
	}
	t.row(imageHeader(out, "NEXT TO GO", "WHY")...)
	for i := range images {
		what := "kept"
		if place := images[i].Place; place > 0 {
			what = strconv.Itoa(place)
		}
		t.row(imageRow(out, &images[i].ImageDecision, what)...)
	}
}

// printPlannedImages writes images in the order of a plan.
func printPlannedImages(t *table, out *output, images []gc.ImageDecision) {
	t.row(imageHeader(out, "ACTION", "REASON")...)
	for i := range images {
		t.row(imageRow(out, &images[i], string(images[i].Action))...)
	}
}

func imageHeader(out *output, what, why string) []string {
	header := []string{"IMAGE", "ID", "SIZE", "LAST USED", what, why}
	if out.wide() {
		header = append(header, "FIRST SEEN", "RUNTIME", "FILESYSTEM")
	}
	return header
}

func imageRow(out *output, img *gc.ImageDecision, what string) []string {
	why := string(img.Reason)
	if img.Detail != "" {
		why += ": " + img.Detail
	}
	row := []string{imageName(img.Names, out.wide()), short(img.ID), size(img.SizeBytes), seen(out, img.LastUsed), what, why}
	if out.wide() {
		row = append(row, seen(out, img.FirstSeen), img.Runtime, img.Filesystem)
	}
	return row
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
