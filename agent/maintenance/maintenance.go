// Package maintenance changes a node without a shutdown: cordon, uncordon, drain and leave. It owns
// when each is allowed, its reports, and the hints of its errors. It does not stop pods itself: the
// guard does.
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

// Options has the node and the parts that a Drainer uses.
type Options struct {
	Node         string // its name
	ControlPlane string // the control plane's type
	Owners       *owner.Owners
	Reporter     *report.Reporter
	Recorder     *controlplane.Recorder
	Guard        *shutdown.Guard
	Member       *loop.Gate // closed while the Node is deregistered
	Drained      *Drained
	Journal      *journal.Journal // has the record of the last drain
	OutOfReach   func() string    // names the runtimes whose pods are unknown, and why; empty if there are none
	Flush        func() error     // syncs the state files to the disk
	// RemovePods deletes the pod objects of this host; nil if there are none.
	RemovePods func(context.Context) error
	Log        *slog.Logger
}

// Drainer cordons, uncordons and drains. It is safe for concurrent use.
type Drainer struct{ o Options }

// New returns a Drainer. If a user deregistered the host before, it stays deregistered.
func New(o Options) *Drainer {
	if o.Reporter.Left() != nil {
		o.Member.Set(hasLeft)
	}
	return &Drainer{o}
}
