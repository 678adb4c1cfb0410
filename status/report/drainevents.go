package report

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

// DrainEvents makes Events of the guard's changes. The goroutine that reports them owns it.
type DrainEvents struct {
	node     string
	recorder *controlplane.Recorder
	released time.Time // end of the drain that the last Event is about
}

// NewDrainEvents are about that Node.
func NewDrainEvents(node string, recorder *controlplane.Recorder) *DrainEvents {
	return &DrainEvents{node: node, recorder: recorder}
}

// ShutdownChanged makes an Event of a change of the guard's state, where it is
// news: a shutdown is told of once, however often the service stops in it.
func (d *DrainEvents) ShutdownChanged(change shutdown.Change) {
	again := change.Trigger == journal.TriggerServiceStop
	node := controlplane.NodeReference(d.node)
	switch r := change.Status.Current; {
	case change.From == shutdown.Released && change.To == shutdown.Draining && again:
		// The service stops at the end of a shutdown that was reported.
	case change.To == shutdown.Draining:
		d.recorder.Record(node, corev1.EventTypeNormal, "Shutdown", "pods are being stopped: "+change.Status.Reason)
	case change.From == shutdown.Draining && change.To == shutdown.Released && r != nil:
		if again && r.FinishedAt.Equal(d.released) {
			return // nothing ran any more
		}
		d.released = r.FinishedAt
		d.recorder.Record(node, corev1.EventTypeNormal, "ShutdownReleased", fmt.Sprintf("%s in %s", r.Tally(), r.FinishedAt.Sub(r.StartedAt).Round(time.Millisecond)))
	case change.From == shutdown.Draining:
		d.recorder.Record(node, corev1.EventTypeNormal, "ShutdownCancelled", change.Status.Reason)
	}
}
