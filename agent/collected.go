package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
)

// collected takes in the report of a run of a loop.
func (a *Agent) collected(loop, kind string, r runs.Report) {
	a.metrics.Collection(loop, r)
	a.history.Add(kind, r)
	var err error
	if len(r.Errors) > 0 {
		err = errors.New(r.Errors[0])
	}
	a.loops.Named(loop).Beat(err)
	node := controlplane.NodeReference(a.node)
	on := ""
	if len(r.Filesystems) > 0 {
		on = " on " + strings.Join(r.Filesystems, " and ")
	}
	if images := r.Count(runs.KindImage); images > 0 {
		a.recorder.Record(node, corev1.EventTypeNormal, "ImagesCollected", fmt.Sprintf(
			"removed %d images (%s), freed %s and %d inodes%s of %s and %d asked for, their own sizes being %s",
			images, r.Trigger, gc.Size(r.FreedBytes), r.FreedInodes, on, gc.Size(r.RequestedBytes), r.RequestedInodes, gc.Size(r.EstimatedBytes)))
	}
	if len(r.Warnings) > 0 { // whose figures differ each time, which would make each an Event of its own
		a.recorder.Record(node, corev1.EventTypeWarning, "CollectionIncomplete", loop+" did not reach its goal"+on+"; `hostler gc history -o wide` tells what keeps it")
	}
}

// CollectHistory tells of the collections that were.
func (a *Agent) CollectHistory(context.Context) (api.CollectHistory, error) {
	return api.CollectHistory{Runs: a.history.Runs()}, nil
}

// transitioned counts a condition's change. A disk under pressure is helped at
// once, and not with the next interval: by what dead containers leave, and then by
// images.
func (a *Agent) transitioned(c corev1.NodeCondition) {
	a.metrics.Transition(c)
	if c.Type == corev1.NodeDiskPressure && c.Status == corev1.ConditionTrue {
		a.dead.Trigger(string(c.Type))
		a.images.Trigger(string(c.Type))
	}
}
