// Package runtimetest has what hostler's tests need of a container runtime. Fake is a runtime in
// memory that fails on demand. Run is the suite for every runtime.Runtime, including Fake.
//
// Fake starts no goroutines and uses time only from package time, so that it works inside a
// testing/synctest bubble. Wrong use, such as a container with an unknown image, is an error of the
// test and panics.
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

// Options configure a Fake. The zero value is a healthy runtime named "fake" on an empty disk of
// 100 GiB.
type Options struct {
	Name         string
	Version      string // "1.0.0" if empty
	SandboxImage string // returned by Info; not added as an image

	// The image filesystem in lists; "/" on "/dev/fake" if empty.
	Path, Mountpoint, Device string

	CapacityBytes uint64 // 100 GiB if zero
	OtherBytes    uint64 // used by other programs
	Inodes        uint64 // total; 1,000,000 if zero

	// FreesAfter is the delay until space and inodes of a removal show as free.
	FreesAfter time.Duration

	// RefusesInUse makes RemoveImage refuse images of containers, as in CRI-O but not in
	// containerd.
	RefusesInUse bool

	// ReportsLayers enables Layers.
	ReportsLayers bool

	// NoSandboxes makes pods mere groups of containers, as in Docker: a pod is ready while one of
	// its containers runs, and disappears with its last one. Its containers can be started again.
	NoSandboxes bool

	// CallTime is the duration of a call while atOnce calls are in progress, including this one;
	// nil means zero. A duration beyond CallTimeout is a hang.
	CallTime func(op Op, atOnce int) time.Duration

	// CallTimeout bounds each call, in addition to a container's grace: 10 s.
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
	images      []*image              // in order of addition
	otherBytes  uint64
	freeing     []freeing
	injections  []*Injection
	subscribers []*subscriber
	seen        seen
}

// seen records what callers did.
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
	layers []Layer       // of its image, used even after the image was removed
	began  time.Time     // start of its latest run
	dying  *time.Timer   // from TERM to its end; nil before
	ended  chan struct{} // closed when the run ends
}

type image struct {
	runtime.Image
	layers []Layer
}

// Call is a call that a Fake received.
type Call struct {
	Op      Op
	Subject string        // ID of the object; empty for lists
	Grace   time.Duration // of StopContainer
	Start   time.Time
	End     time.Time // zero during the call
	Err     error
}

// Signal is a signal that a Fake sent to a container.
type Signal struct {
	ContainerID string
	Name        string // "TERM" or "KILL"
	At          time.Time
}

// NewFake returns a runtime without pods and images.
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

// Name returns the name in Options.
func (f *Fake) Name() string { return f.opts.Name }

// Endpoint returns a URL without a listener.
func (f *Fake) Endpoint() string { return "fake://" + f.opts.Name }

// Close ends calls and watches that hang with runtime.ErrUnavailable, and makes all later ones fail
// with it. Closing twice is an error, as the interface demands.
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

// SetInfo changes what Info returns from now on.
func (f *Fake) SetInfo(change func(*runtime.Info)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.info)
}

// Calls returns the received calls, or only those of the given operations, in the order of their
// start.
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

// Signals returns the signals that were sent to containers, in order.
func (f *Fake) Signals() []Signal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen.signals)
}

// RemovedInUse returns the IDs of images that were removed while a container used them. Garbage
// collection must never cause that.
func (f *Fake) RemovedInUse() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen.removedInUse)
}

// newID returns an ID in a runtime's format that is the same in each run. The caller holds mu.
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

// container returns a container by ID, or nil. The caller holds mu.
func (f *Fake) container(id string) *container {
	return f.byID[id]
}

// pod returns a pod by ID, or nil. The caller holds mu.
func (f *Fake) pod(id string) *pod {
	return f.podByID[id]
}

// image returns an image by ID or any of its names, or nil. The caller holds mu.
func (f *Fake) image(ref string) *image {
	for _, i := range f.images {
		if i.ID == ref || slices.Contains(i.Tags, ref) || slices.Contains(i.Digests, ref) {
			return i
		}
	}
	return nil
}
