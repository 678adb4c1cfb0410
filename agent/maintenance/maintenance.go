// Package maintenance is what a person does to a node without a shutdown: cordon,
// uncordon, drain and leave. It owns who may do so when, what is told of it, and the hints
// that a refusal comes with. It refuses to stop pods itself: that is the guard's.
package maintenance

import (
	"context"
	"log/slog"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/report"
)

// Options say which node it is, and who does what to it.
type Options struct {
	Node         string // its name
	ControlPlane string // the control plane's type
	Owners       *owner.Owners
	Reporter     *report.Reporter
	Recorder     *controlplane.Recorder
	Guard        *shutdown.Guard
	Member       *loop.Gate // shut while the Node is off the control plane
	Drained      *Drained
	Journal      *journal.Journal // has the record of the last drain
	OutOfReach   func() string    // names the runtimes whose pods are not known, and says why; empty if there are none
	Flush        func() error     // writes to the disk what was learned
	// RemovePods removes the objects of pods from the control plane; nil if there are none.
	RemovePods func(context.Context) error
	Log        *slog.Logger
}

// Drainer cordons, uncordons and drains for a person. It is safe for concurrent use.
type Drainer struct{ o Options }

// New returns a drainer of a node. One that a person had leave the control plane
// before this start stays off it.
func New(o Options) *Drainer {
	if o.Reporter.Left() != nil {
		o.Member.Set(hasLeft)
	}
	return &Drainer{o}
}
