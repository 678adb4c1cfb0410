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

// Options say what is reported, and to which control plane.
type Options struct {
	Client   controlplane.Client
	Recorder *controlplane.Recorder
	Facts    Facts
	Node     func() status.Options // the effective configuration
	Policy
	Watch  *controlplane.LeaseWatch   // decides whether another machine of this name is alive
	Twin   func() *controlplane.Clone // another machine that renews the Lease of this name; none if nil
	Mine   func() bool                // whether the Node belongs to hostler
	Beside func() bool                // whether it belongs to a kubelet on this host; never if nil
	// Rebooting reports whether a reboot by hostler is in progress, which may need its cordon; never if nil.
	Rebooting func() bool
	Boot      string // the current boot
	Storage
	Listeners
	// Changed triggers an immediate check, because the host has changed. The default is a new
	// signal.
	Changed loop.Signal
	Now     func() time.Time // the wall clock; time.Now if nil
	Log     *slog.Logger
}

// Policy says how often the Node is written, and how it is registered.
type Policy struct {
	Update   time.Duration // interval of checks of the host
	Rewrite  time.Duration // interval of writes if nothing changed
	Takeover bool          // take over a Node of another machine
	// AdoptOnly says why the Reporter never creates the Node; empty if it creates it.
	AdoptOnly string
}

// Storage is where state is stored.
type Storage struct {
	Store Store        // for a final status that was not sent
	Notes Store        // for an operator's cordon, even if the Store is lost
	Flush func() error // writes both to the disk; may be nil
	// Unread means that the Notes could not be read, so that an earlier decision may be unknown.
	Unread bool
	// Departures stores an operator's departure in the same Notes.
	Departures *Departures
}

// Listeners are called on the reporter's goroutine. All except Named, Observe and Count may be nil.
type Listeners struct {
	Named     func(types.UID)            // with the Node's UID on the control plane
	Lost      func()                     // when the Node was deleted or belongs to another machine
	Taints    func([]corev1.Taint)       // with the stored taints after each read; none if the Node is gone
	Stored    func(*corev1.Node)         // with the stored Node after each read; it must not be changed
	Requested func(leaseDuration string) // with the Lease duration that the stored Node requests, after each read
	Waits     func(why string)           // with why the Lease must wait for the Node, or ""
	Theirs    func(kubelets bool)        // with whether the Node has a kubelet's status, if it does not belong to hostler
	Observe   func(err error)            // after each write
	Count     func(corev1.NodeCondition) // after each transition, with the new condition
}

// Facts are the source of a Node: a *gather.Facts.
type Facts interface {
	// Now measures the host. If guarded is not nil, it replaces the status of the shutdown guard,
	// because it is newer.
	Now(ctx context.Context, guarded *shutdown.Status) status.Facts
	// Machine returns the hardware and its kernel.
	Machine() probe.Machine
}

// Store keeps JSON values by key: *statefile.Values. It does not wait for the disk: callers may hold a mutex.
type Store interface {
	Load() (map[string][]byte, error)
	Write(put map[string][]byte, remove []string) error
}
