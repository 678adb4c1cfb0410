package report

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// Options are what is reported, and where.
type Options struct {
	Client   controlplane.Client
	Recorder *controlplane.Recorder
	Facts    Facts
	Node     func() status.Options // the effective ones, as configured
	Policy
	Watch  *controlplane.LeaseWatch   // judges whether another machine of this name is alive
	Twin   func() *controlplane.Clone // that renews the Lease of this name, too; none if nil
	Mine   func() bool                // whether the Node is hostler's to write
	Beside func() bool                // whether it is a kubelet's on this host; never if nil
	Boot   string                     // the present one
	Storage
	Listeners
	// Changed triggers a check at once, because the host has changed. The reporter creates its own
	// if it is nil.
	Changed loop.Signal
	Now     func() time.Time // the wall clock; time.Now if nil
	Log     *slog.Logger
}

// Policy says how often is reported, and what becomes of the Node.
type Policy struct {
	Update   time.Duration // from one check of the host to the next
	Rewrite  time.Duration // from one write to the next where nothing changed
	Takeover bool          // take the name from another machine
	// AdoptOnly never creates the Node, but waits until another client has.
	AdoptOnly bool
}

// Storage is what outlives the agent.
type Storage struct {
	Store Store        // keeps a final status that was not delivered
	Notes Store        // keeps an operator's cordon, also where the Store is lost
	Flush func() error // writes to the disk what both were given; may be nil
	// Departures keeps an operator's departure in the same Notes.
	Departures *Departures
}

// Listeners are called on the reporter's goroutine; each but Named, Observe and Count may be
// nil.
type Listeners struct {
	Named     func(types.UID)            // with the UID that the control plane gave the Node
	Lost      func()                     // once the Node is deleted or somebody else's
	Taints    func([]corev1.Taint)       // with those of the stored Node, with each read; none if it is gone
	Requested func(leaseDuration string) // with what the stored Node requests of its Lease, with each read
	Waits     func(why string)           // with why the Lease has to wait for the Node; empty once it need not
	Theirs    func(kubelets bool)        // with whether the Node has a kubelet's status, where it is not hostler's
	Observe   func(err error)            // after each write
	Count     func(corev1.NodeCondition) // after each transition, with what the condition is now
}

// Facts are what a Node is made from: a *gather.Facts.
type Facts interface {
	// Now reads the host. The shutdown guard's status is taken from guarded if
	// that is not nil: it is then newer than what the guard says itself.
	Now(ctx context.Context, guarded *shutdown.Status) status.Facts
	// Machine is the hardware and its kernel.
	Machine() probe.Machine
}

// Store keeps JSON values by key: *statefile.Values.
type Store interface {
	Load() (map[string][]byte, error)
	Write(put map[string][]byte, remove []string) error
}
