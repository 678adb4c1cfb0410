package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/gc"
)

func (a *app) imagesCommand() *cobra.Command {
	return a.reader("images", "List images with size, last use and order of removal", func(ctx context.Context, c *api.Client, out *output) error {
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

// printImages prints images in removal order. Images that stay are last.
func printImages(t *table, out *output, images []api.Image) {
	if len(images) == 0 {
		t.line("no images")
		return
	}
	several := severalRuntimes(images, func(img api.Image) string { return img.Runtime })
	t.row(imageHeader(out, several, "REMOVAL ORDER", "REASON")...)
	for i := range images {
		what := "kept"
		if place := images[i].Place; place > 0 {
			what = strconv.Itoa(place)
		}
		printImage(t, out, several, &images[i].ImageDecision, what)
	}
}

// printPlannedImages prints images in the order of a plan.
func printPlannedImages(t *table, out *output, images []gc.ImageDecision) {
	several := severalRuntimes(images, func(img gc.ImageDecision) string { return img.Runtime })
	t.row(imageHeader(out, several, "ACTION", "REASON")...)
	for i := range images {
		printImage(t, out, several, &images[i], string(images[i].Action))
	}
}

// severalRuntimes reports whether images belong to more than one runtime.
func severalRuntimes[I any](images []I, runtime func(I) string) bool {
	return slices.ContainsFunc(images, func(img I) bool { return runtime(img) != runtime(images[0]) })
}

func imageHeader(out *output, several bool, what, why string) []string {
	header := []string{"IMAGE", "ID", "SIZE", "LAST USED", what, why}
	if several && !out.wide() {
		header = slices.Insert(header, 1, "RUNTIME")
	}
	if out.wide() {
		header = append(header, "FIRST SEEN", "RUNTIME", "FILESYSTEM")
	}
	return header
}

// printImage prints an image, with a row for each further tag, so that a search finds all names.
// Wide output has all names in one row.
func printImage(t *table, out *output, several bool, img *gc.ImageDecision, what string) {
	row := imageRow(out, several, img, what)
	t.row(row...)
	for i, name := range img.Names {
		if i == 0 || out.wide() || strings.Contains(name, "@") {
			continue
		}
		same := slices.Repeat([]string{"-"}, len(row))
		same[0], same[len(row)-5], same[len(row)-1] = "  "+name, short(img.ID), "same image"
		t.row(same...)
	}
}

func imageRow(out *output, several bool, img *gc.ImageDecision, what string) []string {
	why := string(img.Reason)
	if img.Detail != "" {
		why += ": " + img.Detail
	}
	row := []string{imageName(img.Names, out.wide()), short(img.ID), size(img.SizeBytes), seen(out, img.LastUsed), what, why}
	if several && !out.wide() {
		row = slices.Insert(row, 1, img.Runtime)
	}
	if out.wide() {
		row = append(row, seen(out, img.FirstSeen), img.Runtime, img.Filesystem)
	}
	return row
}

// imageName returns the first name, or all names.
func imageName(names []string, all bool) string {
	switch {
	case len(names) == 0:
		return "<none>"
	case all:
		return strings.Join(names, ",")
	}
	return names[0]
}

// seen returns how long ago an object was seen, or "not seen".
func seen(out *output, at time.Time) string {
	if at.IsZero() {
		return "not seen"
	}
	return out.ago(at)
}
