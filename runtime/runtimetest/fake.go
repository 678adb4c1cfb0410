// Package runtimetest holds what tests of hostler need of a container runtime:
// Fake, one that lives in memory and breaks on demand, and Run, the suite that
// says what every runtime.Runtime must do, Fake included.
//
// Fake starts no goroutines and reads time from package time only, so that it
// works inside a testing/synctest bubble. Misuse of it, such as a container of
// an image that was never added, is a bug of the test and panics.
package runtimetest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
)

// Options shape a Fake. The zero value is a healthy runtime named "fake" on an
// empty disk of 100 GiB.
type Options struct {
	Name         string
	Version      string // "1.0.0" if empty
	SandboxImage string // reference that Info returns; not added as an image

	// The image filesystem as it is listed; "/" on "/dev/fake" if empty.
	Path, Mountpoint, Device string

	CapacityBytes uint64 // 100 GiB if zero
	OtherBytes    uint64 // used by things that are not the runtime's
	Inodes        uint64 // in all; 1,000,000 if zero

	// FreesAfter is how long after a removal its bytes and inodes show as free.
	FreesAfter time.Duration

	// RefusesInUse makes RemoveImage refuse images of containers, as CRI-O does
	// and containerd does not.
	RefusesInUse bool

	// ReportsLayers makes Layers answer, as with a runtime that reports layers.
	ReportsLayers bool

	// NoSandboxes makes pods mere groups of containers, as Docker's are: one is ready
	// while a container of it runs, and gone when it has none any more. Those can be
	// started again.
	NoSandboxes bool

	// CallTime is how long a call takes while so many, it included, are under
	// way; nil for no time at all. Beyond CallTimeout it is a hang.
	CallTime func(op Op, atOnce int) time.Duration

	// CallTimeout bounds each call by itself, beyond a container's grace: 10 s.
	CallTimeout time.Duration
}

// Fake is a runtime.Runtime in memory. It is safe for concurrent use.
type Fake struct {
	opts   Options
	closed chan struct{}

	mu          sync.Mutex
	isClosed    bool
	serial      int
	info        runtime.Info
	pods        []*pod // in order of creation
	podByID     map[string]*pod
	byID        map[string]*container // of all pods
	images      []*image              // in order of arrival
	otherBytes  uint64
	freeing     []freeing
	injections  []*Injection
	subscribers []*subscriber
	seen        seen
}

// seen is what a Fake reports of its callers.
type seen struct {
	calls        []*Call
	atOnce       int // calls in progress
	signals      []Signal
	removedInUse []string
}

var (
	_ runtime.Runtime = (*Fake)(nil)
	_ runtime.Starter = (*Fake)(nil)
)

type pod struct {
	runtime.Pod // without its containers
	containers  []*container
}

type container struct {
	runtime.Container
	spec   ContainerSpec
	layers []Layer       // of its image, held even when the image is removed
	began  time.Time     // when its latest run did
	dying  *time.Timer   // runs from TERM to its end by itself; nil before
	ended  chan struct{} // closed when that run ends
}

type image struct {
	runtime.Image
	layers []Layer
}

// Call is one call that a Fake received.
type Call struct {
	Op      Op
	Subject string        // ID of the object; empty for lists
	Grace   time.Duration // of StopContainer
	Start   time.Time
	End     time.Time // zero while it lasts
	Err     error
}

// Signal is what a Fake sent to a container.
type Signal struct {
	ContainerID string
	Name        string // "TERM" or "KILL"
	At          time.Time
}

// NewFake makes a runtime without pods and images.
func NewFake(opts Options) *Fake {
	opts.Name = cmp.Or(opts.Name, "fake")
	opts.Version = cmp.Or(opts.Version, "1.0.0")
	opts.Path = cmp.Or(opts.Path, "/")
	opts.Mountpoint = cmp.Or(opts.Mountpoint, "/")
	opts.Device = cmp.Or(opts.Device, "/dev/fake")
	opts.CapacityBytes = cmp.Or(opts.CapacityBytes, 100<<30)
	opts.Inodes = cmp.Or(opts.Inodes, 1_000_000)
	opts.CallTimeout = cmp.Or(opts.CallTimeout, 10*time.Second)
	f := &Fake{opts: opts, closed: make(chan struct{}), otherBytes: opts.OtherBytes, podByID: map[string]*pod{}, byID: map[string]*container{}}
	f.info = runtime.Info{
		Name: opts.Name, Version: opts.Version, Endpoint: f.Endpoint(),
		Ready: true, NetworkReady: true, SandboxImage: opts.SandboxImage,
	}
	return f
}

// Name is the name given in Options.
func (f *Fake) Name() string { return f.opts.Name }

// Endpoint is a URL that nothing listens at.
func (f *Fake) Endpoint() string { return "fake://" + f.opts.Name }

// Close ends hung calls and watches with runtime.ErrUnavailable, and makes all
// later ones fail so. Closing twice is an error, as the contract has it.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isClosed {
		return fmt.Errorf("close %s: closed already", f.opts.Name)
	}
	f.isClosed = true
	close(f.closed)
	for _, c := range f.containers() {
		if c.dying != nil {
			c.dying.Stop()
		}
	}
	return nil
}

// SetInfo changes what Info answers from now on.
func (f *Fake) SetInfo(change func(*runtime.Info)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.info)
}

// Calls returns the calls received so far, or only those of the given
// operations, in the order in which they began.
func (f *Fake) Calls(ops ...Op) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var calls []Call
	for _, c := range f.seen.calls {
		if len(ops) == 0 || slices.Contains(ops, c.Op) {
			calls = append(calls, *c)
		}
	}
	return calls
}

// Signals returns what was sent to containers, in order.
func (f *Fake) Signals() []Signal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen.signals)
}

// RemovedInUse returns the IDs of images that were removed while a container
// used them: what GC must never cause.
func (f *Fake) RemovedInUse() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen.removedInUse)
}

// newID makes an ID that looks like a runtime's and is the same in each run.
// The caller holds mu.
func (f *Fake) newID(kind string) string {
	f.serial++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", f.opts.Name, kind, f.serial))
	return hex.EncodeToString(sum[:])
}

// containers returns all containers. The caller holds mu.
func (f *Fake) containers() []*container {
	var all []*container
	for _, p := range f.pods {
		all = append(all, p.containers...)
	}
	return all
}

// container finds one by ID, or returns nil. The caller holds mu.
func (f *Fake) container(id string) *container {
	return f.byID[id]
}

// pod finds one by ID, or returns nil. The caller holds mu.
func (f *Fake) pod(id string) *pod {
	return f.podByID[id]
}

// image finds one by ID or any of its names, or returns nil. The caller holds mu.
func (f *Fake) image(ref string) *image {
	for _, i := range f.images {
		if i.ID == ref || slices.Contains(i.Tags, ref) || slices.Contains(i.Digests, ref) {
			return i
		}
	}
	return nil
}
