package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

const (
	// factsTimeout bounds one look at the host, whatever filesystem hangs.
	factsTimeout = 5 * time.Second
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
	// machineAge is how long it takes at most to notice hot-plugged parts.
	machineAge = 5 * time.Minute
)

// facts gathers what a Node is made from. It is safe for concurrent use.
type facts struct {
	reader     *probe.Reader
	nodeFolder string // on the node filesystem
	runtimes   *runtimes
	guard      func() shutdown.Status
	guardFacts func(shutdown.Status) status.Shutdown
	maxImages  func() int // how many images a Node lists, -1 for all; nil likewise

	mu          sync.Mutex // guards what follows
	machine     probe.Machine
	machineAt   time.Time // when it was read
	network     probe.Network
	listedAt    time.Time       // by the monotonic clock
	stale       bool            // images changed since
	failedAt    time.Time       // when a list failed last; zero after one that did not
	pause       time.Duration   // from then to the next try
	images      []runtime.Image // those that a Node lists
	filesystems []runtime.Filesystem
}

// existing is the folder, or the nearest one above it that is there: the state
// folder may not be, where nothing can be written.
func existing(folder string) string {
	for {
		if _, err := os.Stat(folder); err == nil || folder == filepath.Dir(folder) {
			return folder
		}
		folder = filepath.Dir(folder)
	}
}

// now measures the host. Status of the shutdown guard is taken from guarded if it
// is not nil: it is then newer than what the guard itself says.
func (f *facts) now(ctx context.Context, guarded *shutdown.Status) status.Facts {
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	g := f.guard()
	if guarded != nil {
		g = *guarded
	}
	runtimes, asked := f.runtimes.current()
	draining := draining(g)
	images, filesystems := f.lists(ctx, draining.Active)

	result := f.measure(ctx, filesystems)
	result.RuntimesAsked, result.Runtimes, result.Images = asked, runtimes, images
	result.DeadSockets = f.runtimes.deadSockets()
	result.Draining = draining
	result.Shutdown = f.guardFacts(g)
	f.mu.Lock()
	result.Network = f.network
	f.mu.Unlock()
	return result
}

// measure looks at the machine and its filesystems, and asks no runtime.
func (f *facts) measure(ctx context.Context, imageFilesystems []runtime.Filesystem) status.Facts {
	folders := []string{f.nodeFolder}
	for _, fs := range imageFilesystems {
		folders = append(folders, fs.Path)
	}
	usage := f.reader.Usage(ctx, folders...)
	result := status.Facts{Machine: f.hardware(), Memory: usage.Memory, PIDs: usage.PIDs}
	for i, fs := range usage.Filesystems {
		role := status.RoleImage
		if i == 0 {
			role = status.RoleNode
		}
		result.Filesystems = append(result.Filesystems, status.Filesystem{Role: role, Filesystem: fs})
	}
	return result
}

// hardware returns the machine, read anew if that was long ago. Where something
// cannot be read, what was read before stands.
func (f *facts) hardware() probe.Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.machineAt) >= machineAge {
		if m, err := f.reader.Machine(); err == nil {
			f.machine = m
		}
		f.machineAt = time.Now()
	}
	return f.machine
}

// draining says in the Node's words that the host is going down.
func draining(g shutdown.Status) status.Draining {
	if g.State != shutdown.Draining && g.State != shutdown.Released {
		return status.Draining{}
	}
	d := status.Draining{Active: true, Reason: g.Reason}
	if g.Current != nil {
		d.Since = g.Current.StartedAt
	}
	return d
}

// lists returns the images and their filesystems, listed anew if they are old or
// something happened; kept asks for the last lists, since a drain must not wait
// for them. Where a runtime does not answer, what it last listed stands.
func (f *facts) lists(ctx context.Context, kept bool) ([]runtime.Image, []runtime.Filesystem) {
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
	limit := -1
	if f.maxImages != nil {
		limit = f.maxImages()
	}
	newImages, imageErr := f.runtimes.set.Images(ctx)
	newFilesystems, fsErr := f.runtimes.set.ImageFilesystems(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images = withLast(newImages, f.images, imageErr, func(img runtime.Image) string { return img.Runtime })
	f.images = status.Largest(f.images, limit) // thousands would take megabytes
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

// renew has the lists asked for at the next look, because a runtime came, went or
// is back.
func (f *facts) renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale, f.failedAt = true, time.Time{}
}

// notice takes in an event of a runtime.
func (f *facts) notice(e runtime.Event) {
	if e.Type == runtime.ImageAdded || e.Type == runtime.ImageRemoved || e.Type == runtime.Changed {
		f.mu.Lock()
		f.stale = true
		f.mu.Unlock()
	}
}

// watchNetwork reads the addresses again whenever they may have changed, and
// calls changed.
func (f *facts) watchNetwork(ctx context.Context, changed func()) error {
	changes := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- probe.Watch(ctx, changes) }()
	for {
		select {
		case <-changes:
			network := probe.Addresses()
			f.mu.Lock()
			f.network = network
			f.mu.Unlock()
			changed()
		case err := <-ended:
			return err
		}
	}
}
