// Package gather collects the facts from which a Node is built: the machine, its filesystems, its
// network, and the last answers of its runtimes.
//
// It owns how often each source is read, and which earlier value is used when a source does not
// answer. It does not judge what it reads: package status does.
package gather

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

const (
	// ProbeTimeout bounds one measurement of the host, even if filesystems hang.
	ProbeTimeout = 5 * time.Second
	// listTimeout bounds the runtimes' part of it, so that there is time left to measure the host
	// if a runtime hangs.
	listTimeout = 3 * time.Second
	// listAge is the maximum age of lists of images and image filesystems. Changes are reported by
	// events.
	listAge = 5 * time.Minute
	// listPause is the minimum time between two lists: a pull causes many events.
	listPause = 10 * time.Second
	// maxListPause is the longest pause after lists that failed.
	maxListPause = time.Minute
	// machineAge is the maximum age of data about the machine if nothing reports a change.
	machineAge = 5 * time.Minute
	// firstList is how long after the start the runtimes may take to list their image filesystems.
	firstList = time.Minute
)

// Runtimes are the container runtimes of the host, see runtime/discovery.
type Runtimes interface {
	Set() *runtime.Set
	// Current returns the last health of each runtime, and whether all have been checked.
	Current() (states []runtime.Health, asked bool)
	// Unreachable returns the runtimes that cannot be reached while their containers run.
	Unreachable() []runtime.Health
	// DeadSockets returns the paths of sockets without a usable runtime.
	DeadSockets() []string
}

// FactsOptions are the sources of facts.
type FactsOptions struct {
	Reader   *probe.Reader
	Folder   string // on the node filesystem; if it is missing, its nearest ancestor is used
	Runtimes Runtimes
	Machine  probe.Machine        // as just read by Reader
	Network  func() probe.Network // last known; no network if nil
	// Guard returns the status of the shutdown guard.
	Guard func() shutdown.Status
	// OtherGuard returns another program that guards the shutdown, with evidence, or "". nil means
	// that there is none.
	OtherGuard func() string
	// Stalls returns the resources whose stalls are measured; none if nil.
	Stalls func() []string
	// MaxImages returns how many images the Node lists, -1 for all.
	MaxImages func() int
	// Custom returns the results of custom checks; nil if there are none.
	Custom func() []status.Custom
	// Scanned reports whether the folder of custom checks has been read; nil if there is none.
	Scanned func() bool
}

// Facts gathers the facts from which a Node is built. It is safe for concurrent use.
type Facts struct {
	options FactsOptions

	mu          sync.Mutex // guards the fields below
	machine     probe.Machine
	machineAt   time.Time // when it was read
	layout      probe.Layout
	outdated    bool            // layout has changed since
	listedAt    time.Time       // by the monotonic clock
	stale       bool            // images have changed since
	failedAt    time.Time       // last failed list; zero after a success
	pause       time.Duration   // from failedAt until the next attempt
	images      []runtime.Image // only those that a Node lists
	filesystems []runtime.Filesystem
	unlisted    time.Time // since when filesystems cannot be listed that were never listed; zero if they were
}

// NewFacts returns a Facts that has gathered nothing yet.
func NewFacts(o FactsOptions) *Facts {
	o.Folder = local.Existing(o.Folder) // the state folder may be missing if the disk is not writable
	return &Facts{options: o, machine: o.Machine, machineAt: time.Now()}
}

// Now measures the host. If guarded is not nil, it replaces the status of the shutdown guard,
// because it is newer.
func (f *Facts) Now(ctx context.Context, guarded *shutdown.Status) status.Facts {
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	g := f.options.Guard()
	if guarded != nil {
		g = *guarded
	}
	protection, draining := f.protection(g), draining(g)
	images, filesystems := f.lists(ctx, draining.Active)

	result := f.Measure(ctx, filesystems)
	result.Shutdown, result.Unreachable = protection.Shutdown, protection.Unreachable
	result.RuntimesQueried, result.Runtimes, result.Images = protection.RuntimesQueried, protection.Runtimes, images
	result.Missing.Filesystems = f.starting()
	result.Missing.Sockets = f.options.Runtimes.DeadSockets()
	result.Draining = draining
	if f.options.Network != nil {
		result.Network = f.options.Network()
	}
	if f.options.Custom != nil {
		result.Missing.Checks = f.options.Scanned != nil && !f.options.Scanned()
		result.Custom = f.options.Custom()
	}
	return result
}

// startFolders returns the folders to which runtimes write when a pod starts: state, logs,
// temporary files. Missing folders are skipped later.
func startFolders() []string {
	return []string{
		"/run", "/run/containerd", "/run/docker", "/run/crio", "/run/containers", "/run/runc",
		"/tmp", "/var/tmp", "/var/log/pods",
		"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/docker", "/var/lib/containers",
	}
}

// Measure reads the machine and its filesystems, without calls to runtimes.
func (f *Facts) Measure(ctx context.Context, imageFilesystems []runtime.Filesystem) status.Facts {
	folders := []string{f.options.Folder}
	for _, fs := range imageFilesystems {
		folders = append(folders, fs.Path)
	}
	images := len(folders)
	folders = append(folders, startFolders()...)
	usage := f.options.Reader.Usage(ctx, folders...)
	f.follow(usage.Layout)
	result := status.Facts{Machine: f.Machine(), Memory: usage.Memory, CPUs: usage.CPUs, PIDs: usage.PIDs}
	if f.options.Stalls != nil {
		result.Stalls = f.options.Reader.Stalls(f.options.Stalls())
	}
	for i, fs := range usage.Filesystems {
		role := status.RoleImage
		switch {
		case i == 0:
			role = status.RoleNode
		case i >= images:
			role = status.RoleStart
		}
		result.Filesystems = append(result.Filesystems, status.Filesystem{Role: role, Filesystem: fs})
	}
	return result
}

// follow marks the machine as outdated if its layout differs from the last check.
func (f *Facts) follow(layout probe.Layout) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.layout != (probe.Layout{}) && f.layout != layout {
		f.outdated = true
	}
	f.layout = layout
}

// Machine returns the machine, and reads it again after changes or machineAge. If that fails, the
// last values stay.
func (f *Facts) Machine() probe.Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.outdated || time.Since(f.machineAt) >= machineAge {
		if m, err := f.options.Reader.Machine(); err == nil {
			f.machine, f.outdated = m, false
		}
		f.machineAt = time.Now()
	}
	return f.machine
}

// draining converts the shutdown status for the Node.
func draining(g shutdown.Status) status.Draining {
	if !g.GoingDown() {
		return status.Draining{}
	}
	d := status.Draining{Active: true, Reason: g.Reason}
	if g.State == shutdown.Disarmed {
		d.Reason = "hostler was restarted while pods were being stopped"
	}
	if g.Current != nil {
		d.Since = g.Current.StartedAt
	}
	return d
}

// lists returns the images and their filesystems. It lists them again if they are old or something
// has changed. If kept is set, it returns the last lists, because a drain must not wait for new
// ones. If a runtime does not answer, its last lists are used.
func (f *Facts) lists(ctx context.Context, kept bool) ([]runtime.Image, []runtime.Filesystem) {
	f.mu.Lock()
	age := time.Since(f.listedAt)
	fresh := !f.listedAt.IsZero() && (age < listPause || age < listAge && !f.stale)
	pausing := !f.failedAt.IsZero() && time.Since(f.failedAt) < f.pause
	images, filesystems := f.images, f.filesystems
	f.mu.Unlock()
	if fresh || pausing || kept {
		return images, filesystems
	}

	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	f.mu.Lock()
	f.stale = false // later changes may be missing in the lists
	f.mu.Unlock()
	var newImages []runtime.Image
	var imageErr error
	var listing sync.WaitGroup
	listing.Go(func() { newImages, imageErr = f.options.Runtimes.Set().Images(ctx) }) // may take all the time
	newFilesystems, fsErr := f.options.Runtimes.Set().ImageFilesystems(ctx)
	listing.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch known := fsErr == nil || len(newFilesystems)+len(f.filesystems) > 0; {
	case known:
		f.unlisted = time.Time{}
	case f.unlisted.IsZero():
		f.unlisted = time.Now()
	}
	f.images = withLast(newImages, f.images, imageErr, func(img runtime.Image) string { return img.Runtime })
	f.images = status.Largest(f.images, f.options.MaxImages()) // keeping thousands would take megabytes
	f.filesystems = withLast(newFilesystems, f.filesystems, fsErr, func(fs runtime.Filesystem) string { return fs.Runtime })
	switch {
	case imageErr != nil || fsErr != nil:
		// A failed list may have cost its runtime much: 16 MB, or a timeout.
		f.stale, f.failedAt, f.pause = true, time.Now(), min(max(2*f.pause, listPause), maxListPause)
	default:
		f.failedAt, f.pause = time.Time{}, 0
		if len(newFilesystems) > 0 {
			f.listedAt = time.Now()
		}
	}
	return f.images, f.filesystems
}

// starting reports whether no runtime has listed its image filesystems yet.
func (f *Facts) starting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.unlisted.IsZero() && time.Since(f.unlisted) < firstList
}

// withLast adds to a list the last results of runtimes that failed.
func withLast[T any](listed, last []T, err error, runtimeOf func(T) string) []T {
	var failed *runtime.SetError
	if !errors.As(err, &failed) {
		return listed
	}
	for _, m := range failed.Failed {
		for _, o := range last {
			if runtimeOf(o) == m.Runtime {
				listed = append(listed, o)
			}
		}
	}
	return listed
}

// Renew requests new lists at the next check, because a runtime appeared, disappeared or recovered.
func (f *Facts) Renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale, f.failedAt = true, time.Time{}
}

// Notice receives an event of a runtime.
func (f *Facts) Notice(e runtime.Event) {
	if e.Type == runtime.ImageAdded || e.Type == runtime.ImageRemoved || e.Type == runtime.Changed {
		f.mu.Lock()
		f.stale = true
		f.mu.Unlock()
	}
}
