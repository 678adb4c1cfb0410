package maintenance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/caller"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/status/report"
)

// diskTimeout bounds the wait for a disk.
const diskTimeout = 2 * time.Second

// errDisk is why a write was given up.
var errDisk = fmt.Errorf("the disk did not answer within %v", diskTimeout)

// Cordon marks the Node unschedulable or schedulable, as a user requested.
func (d *Drainer) Cordon(ctx context.Context, unschedulable bool) (CordonReport, error) {
	reporting, cancel := context.WithTimeout(ctx, report.WriteTimeout)
	defer cancel()
	want := Cordon{Unschedulable: unschedulable, By: caller.Name(ctx), At: time.Now().UTC()}
	changed, err := d.o.Reporter.Cordon(reporting, report.Decision{Unschedulable: want.Unschedulable, By: want.By, At: want.At})
	answer := CordonReport{Node: d.o.Node, Cordon: want, Changed: changed}
	if before := d.o.Reporter.Decided(); before != nil && !changed {
		answer.Cordon = Cordon{Unschedulable: before.Unschedulable, By: before.By, At: before.At}
	}
	verb := "cordon"
	if !unschedulable {
		verb = "uncordon"
	}
	switch {
	case errors.Is(err, report.ErrNotOurs):
		_, other, _ := d.o.Owners.Mine(owner.Node)
		e := &hint.Error{Message: fmt.Sprintf("%s node %s: it is not hostler's: %s", verb, d.o.Node, other.Evidence), Hint: "a host with node.enabled: false has no Node to " + verb}
		if other.Name == owner.Kubelet {
			e.Hint = fmt.Sprintf("the Node is the kubelet's: `kubectl %s %s`", verb, d.o.Node)
		}
		return answer, e
	case errors.Is(err, report.ErrNoCordoner):
		return answer, &hint.Error{
			Message: fmt.Sprintf("%s node %s: control plane %s: %v", verb, d.o.Node, d.o.ControlPlane, err),
			Hint:    "set spec.unschedulable of the Node with the control plane's own tools",
		}
	case err != nil:
		answer.Pending = true
		answer.Message = fmt.Sprintf("saved on this host, and written to the control plane once it answers: %v", err)
	}
	if !unschedulable && d.o.Journal != nil {
		d.o.Journal.EndMaintenance()
	}
	if err := d.onDisk(ctx); err != nil {
		answer.Message = strings.TrimPrefix(answer.Message+"; it may not survive a power cut: "+err.Error(), "; ")
	}
	if changed {
		d.recordCordon(unschedulable, want.By, fmt.Sprintf(" with `hostler %s`", verb))
	}
	return answer, nil
}

// recordCordon logs a changed cordon, and records an Event.
func (d *Drainer) recordCordon(unschedulable bool, by, how string) {
	reason, did := "NodeNotSchedulable", "cordoned"
	if !unschedulable {
		reason, did = "NodeSchedulable", "uncordoned"
	}
	d.o.Log.Info("node "+did, "by", by)
	d.o.Recorder.Record(controlplane.NodeReference(d.o.Node), corev1.EventTypeNormal, reason, fmt.Sprintf("%s by %s%s", did, by, how))
}

// onDisk syncs the state to the disk, so that it survives a power failure. It has its own time
// limit. So it works even if the control plane took all the time, or if the caller has
// disconnected.
func (d *Drainer) onDisk(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), diskTimeout, fmt.Errorf("write the state file: %w", context.DeadlineExceeded))
	defer cancel()
	return bounded.Call(ctx, d.o.Flush)
}
