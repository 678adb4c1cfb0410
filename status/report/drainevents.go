package report

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

// DrainEvents records Events of changes of the shutdown guard. The goroutine that calls it owns it.
type DrainEvents struct {
	node     string
	recorder *controlplane.Recorder
	released time.Time // end of the drain in the last Event
}

// NewDrainEvents returns the DrainEvents of a Node.
func NewDrainEvents(node string, recorder *controlplane.Recorder) *DrainEvents {
	return &DrainEvents{node: node, recorder: recorder}
}

// ShutdownChanged records an Event of a change of the guard's state, if it is new. A shutdown has
// only one Event, even if the service is stopped several times during it.
func (d *DrainEvents) ShutdownChanged(change shutdown.Change) {
	again := change.Trigger == journal.TriggerServiceStop
	node := controlplane.NodeReference(d.node)
	switch r := change.Status.Current; {
	case change.From == shutdown.Released && change.To == shutdown.Draining && again:
		// The service is stopped at the end of a shutdown that was already reported.
	case change.To == shutdown.Draining:
		d.recorder.Record(node, corev1.EventTypeNormal, "Shutdown", "pods are being stopped: "+change.Status.Reason)
	case change.From == shutdown.Draining && change.To == shutdown.Released && r != nil:
		if again && r.FinishedAt.Equal(d.released) {
			return // nothing was running
		}
		d.released = r.FinishedAt
		d.recorder.Record(node, corev1.EventTypeNormal, "ShutdownReleased", fmt.Sprintf("%s in %s", r.Tally(), r.FinishedAt.Sub(r.StartedAt).Round(time.Millisecond)))
	case change.From == shutdown.Draining:
		d.recorder.Record(node, corev1.EventTypeNormal, "ShutdownCancelled", change.Status.Reason)
	}
}
