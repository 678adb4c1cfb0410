package cli

import (
	"fmt"
	"strings"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
)

// why returns a reason with its detail.
func why(reason gc.Reason, detail string) string {
	if detail == "" {
		return string(reason)
	}
	return string(reason) + ": " + detail
}

func printContainers(t *table, out *output, containers []gc.ContainerDecision) {
	rows := out.columns(t, "POD", "CONTAINER", "ID", "EXITED", "ACTION", "REASON")
	for _, c := range containers {
		exited := "-"
		if !c.ExitedAt.IsZero() {
			exited = out.ago(c.ExitedAt)
		}
		rows(c.Runtime, c.Pod, c.Name, short(c.ID), exited, string(c.Action), why(c.Reason, c.Detail))
	}
}

func printDeadPods(t *table, out *output, pods []gc.PodDecision) {
	rows := out.columns(t, "DEAD POD", "ID", "CREATED", "ACTION", "REASON")
	for _, p := range pods {
		rows(p.Runtime, p.Title(), short(p.ID), out.ago(p.CreatedAt), string(p.Action), why(p.Reason, p.Detail))
	}
}

func printLogs(t *table, out *output, logs []gc.LogDecision) {
	t.row("ORPHANED LOG", "SIZE", "WRITTEN", "ACTION", "REASON")
	for _, l := range logs {
		t.row(l.Path, size(l.SizeBytes), out.ago(l.ModifiedAt), string(l.Action), why(l.Reason, l.Detail))
	}
}

// columns starts a table. In wide output, the last column is the runtime.
func (o *output) columns(t *table, header ...string) func(runtime string, cells ...string) {
	if o.wide() {
		header = append(header, "RUNTIME")
	}
	t.row(header...)
	return func(runtime string, cells ...string) {
		if o.wide() {
			cells = append(cells, runtime)
		}
		t.row(cells...)
	}
}

// printRemoved lists what a run removed.
func printRemoved(t *table, out *output, removed []runs.Removal) {
	if len(removed) == 0 {
		return
	}
	rows := out.columns(t, "REMOVED", "NAME", "SIZE", "REASON")
	for _, r := range removed {
		name, bytes := imageName(r.Names, out.wide()), "-"
		if r.Kind == runs.KindContainer {
			name = r.Pod + "/" + name
		}
		if r.Kind == runs.KindImage || r.Kind == runs.KindLog {
			bytes = size(r.SizeBytes)
		}
		rows(r.Runtime, r.Kind, name, bytes, string(r.Reason))
	}
	t.line("")
}

// removedInAll counts removals by kind. A run that removes images may also have removed containers.
func removedInAll(s runs.Summary) string {
	if parts := kinds(s.RemovedKinds); len(parts) > 0 {
		return strings.Join(parts, ", ")
	}
	return fmt.Sprint(s.Removed)
}

// kinds returns counts with nouns: 2 images, 1 log.
func kinds(counts map[string]int) []string {
	var parts []string
	for _, kind := range []string{runs.KindImage, runs.KindContainer, runs.KindPod, runs.KindLog} {
		if n := counts[kind]; n > 0 {
			parts = append(parts, count(n, kind))
		}
	}
	return parts
}

// removedWhat counts removals. It always has images and containers, and other kinds if there are
// any.
func removedWhat(r runs.Report) string {
	parts := []string{count(r.Count(runs.KindImage), "image"), count(r.Count(runs.KindContainer), "container")}
	for _, kind := range []string{runs.KindPod, runs.KindLog} {
		if n := r.Count(kind); n > 0 {
			parts = append(parts, count(n, kind))
		}
	}
	last := len(parts) - 1
	return fmt.Sprintf("%s and %s", strings.Join(parts[:last], ", "), parts[last])
}
