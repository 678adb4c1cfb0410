// Package gather collects the facts that a Node is made from: the machine, its
// filesystems, its network and what its runtimes last reported.
//
// It owns how often each source is read, and which earlier value is used when a source
// does not answer. It does not judge what it reads: package status does.
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
	// ProbeTimeout bounds one check of the host, whatever filesystem hangs.
	ProbeTimeout = 5 * time.Second
	// listTimeout bounds what of it runtimes may take, so that one that hangs
	// leaves time to measure the host itself.
	listTimeout = 3 * time.Second
	// listAge is how old lists of images and image filesystems may get; what
	// happens in between comes as an event.
	listAge = 5 * time.Minute
	// listPause is the least time between two lists: a pull is many events.
	listPause = 10 * time.Second
	// maxListPause is the same after lists that failed, in the end.
	maxListPause = time.Minute
	// machineAge is how old what was read of the machine may get where nothing reports
	// that it has changed.
	machineAge = 5 * time.Minute
)

// Runtimes are the container runtimes of the host, as runtime/discovery knows them.
type Runtimes interface {
	Set() *runtime.Set
	// Current returns what each runtime last reported, and whether all were asked yet.
	Current() (states []runtime.Health, asked bool)
	// Unreachable returns the runtimes that cannot be reached while their containers run.
	Unreachable() []runtime.Health
	// DeadSockets returns the paths of sockets without a usable runtime.
	DeadSockets() []string
}

// FactsOptions are the sources of facts.
type FactsOptions struct {
	Reader   *probe.Reader
	Folder   string // on the node filesystem; if it is not there, the nearest one above it that is
	Runtimes Runtimes
	Machine  probe.Machine        // as Reader has just read it
	Network  func() probe.Network // as last read; none if nil
	// Guard is what the shutdown guard says of itself.
	Guard func() shutdown.Status
	// OtherGuard names another program that guards the shutdown, with its evidence; empty if
	// there is none, which is so if it is nil.
	OtherGuard func() string
	// Stalls names the resources whose stalls are measured; none if it is nil.
	Stalls func() []string
	// MaxImages is how many images the Node lists, -1 for all.
	MaxImages func() int
	// Custom is what checks of the administrator's own say; nil where there are none.
	Custom func() []status.Custom
}

// Facts gathers what a Node is made from. It is safe for concurrent use.
type Facts struct {
	options FactsOptions

	mu          sync.Mutex // guards what follows
	machine     probe.Machine
	machineAt   time.Time // when it was read
	layout      probe.Layout
	outdated    bool            // the layout has changed since
	listedAt    time.Time       // by the monotonic clock
	stale       bool            // images changed since
	failedAt    time.Time       // when a list failed last; zero after one that did not
	pause       time.Duration   // from then to the next try
	images      []runtime.Image // those that a Node lists
	filesystems []runtime.Filesystem
}

// NewFacts returns facts of which none is gathered yet.
func NewFacts(o FactsOptions) *Facts {
	o.Folder = local.Existing(o.Folder) // the state folder may be missing, where nothing can be written
	return &Facts{options: o, machine: o.Machine, machineAt: time.Now()}
}

// Now measures the host. Status of the shutdown guard is taken from guarded if it
// is not nil: it is then newer than what the guard itself says.
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
	result.DeadSockets = f.options.Runtimes.DeadSockets()
	result.Draining = draining
	if f.options.Network != nil {
		result.Network = f.options.Network()
	}
	if f.options.Custom != nil {
		result.Custom = f.options.Custom()
	}
	return result
}

// startFolders are where the runtimes' programs write when a pod starts, wherever they are: their
// state, its logs, temporary files. Those that are not there are left out.
func startFolders() []string {
	return []string{
		"/run", "/run/containerd", "/run/docker", "/run/crio", "/run/containers", "/run/runc",
		"/tmp", "/var/tmp", "/var/log/pods",
		"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/docker", "/var/lib/containers",
	}
}

// Measure reads the machine and its filesystems, and asks no runtime.
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

// follow has the machine read again where its parts are others than at the last check.
func (f *Facts) follow(layout probe.Layout) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.layout != (probe.Layout{}) && f.layout != layout {
		f.outdated = true
	}
	f.layout = layout
}

// Machine returns the machine. It reads it again if it has changed, or after a while. Values that
// cannot be read keep their last state.
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

// draining says in the Node's words that the host is going down.
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

// lists returns the images and their filesystems, listed again if they are old or
// something happened; kept requests the last lists, since a drain must not wait
// for them. Where a runtime does not answer, what it last listed stands.
func (f *Facts) lists(ctx context.Context, kept bool) ([]runtime.Image, []runtime.Filesystem) {
	f.mu.Lock()
	age := time.Since(f.listedAt)
	fresh := !f.listedAt.IsZero() && (age < listPause || age < listAge && !f.stale)
	resting := !f.failedAt.IsZero() && time.Since(f.failedAt) < f.pause
	images, filesystems := f.images, f.filesystems
	f.mu.Unlock()
	if fresh || resting || kept {
		return images, filesystems
	}

	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	f.mu.Lock()
	f.stale = false // what happens from here on may be missing in the lists
	f.mu.Unlock()
	newImages, imageErr := f.options.Runtimes.Set().Images(ctx)
	newFilesystems, fsErr := f.options.Runtimes.Set().ImageFilesystems(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images = withLast(newImages, f.images, imageErr, func(img runtime.Image) string { return img.Runtime })
	f.images = status.Largest(f.images, f.options.MaxImages()) // thousands would take megabytes
	f.filesystems = withLast(newFilesystems, f.filesystems, fsErr, func(fs runtime.Filesystem) string { return fs.Runtime })
	switch {
	case imageErr != nil || fsErr != nil:
		// A list that fails may have cost its runtime much: 16 MB, or a time-out.
		f.stale, f.failedAt, f.pause = true, time.Now(), min(max(2*f.pause, listPause), maxListPause)
	default:
		f.failedAt, f.pause = time.Time{}, 0
		if len(newFilesystems) > 0 {
			f.listedAt = time.Now()
		}
	}
	return f.images, f.filesystems
}

// withLast adds to a list what the runtimes that failed last listed.
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

// Renew has the lists requested at the next check, because a runtime came, went or
// is back.
func (f *Facts) Renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale, f.failedAt = true, time.Time{}
}

// Notice takes in an event of a runtime.
func (f *Facts) Notice(e runtime.Event) {
	if e.Type == runtime.ImageAdded || e.Type == runtime.ImageRemoved || e.Type == runtime.Changed {
		f.mu.Lock()
		f.stale = true
		f.mu.Unlock()
	}
}
