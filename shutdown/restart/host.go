package restart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/internal/mounts"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
)

// PendingUnit is a systemd unit that systemd has yet to start in this boot.
type PendingUnit struct {
	Unit   string
	Path   string // mount point; empty if it is not a mount unit
	Queued bool   // it has a start job; otherwise it is a mount unit that is not mounted
}

// HostFacts are the dependencies of containers on the host, and which of them are not ready.
type HostFacts struct {
	// Needs returns the dependencies of a container. Their Paths include the targets of symbolic
	// links. It returns false if the runtime did not report them, or these links cannot be read.
	Needs        func(journal.Restart) (runtime.StartNeeds, bool)
	PendingUnits []PendingUnit
	NoAnswer     bool // systemd has not answered
}

const (
	// networkUnit is the unit that the runtimes' own services wait for before they start
	// containers.
	networkUnit = "network-online.target"
	// queuedBound is how long a container waits for the network, for units that it depends on, and
	// for mounts below its folders.
	queuedBound = 10 * time.Minute
)

// waitsFor returns what a container waits for; empty if nothing. It waits for a mount that contains
// one of its paths even if the mount has failed. Otherwise the container would write to the folder
// below the mount point.
func (h *HostFacts) waitsFor(r journal.Restart, waited time.Duration) (reason string, queued bool) {
	if h == nil {
		return "", false
	}
	needs, known := h.Needs(r)
	switch {
	case !known && waited < holdBound:
		return "waits until its dependencies on the host can be read", true
	case h.NoAnswer && waited < holdBound:
		return "waits for systemd to report its queued units", true
	}
	for _, c := range h.PendingUnits {
		at := c.Unit
		if c.Path != "" {
			at += " (" + c.Path + ")"
		}
		switch {
		case c.Path != "" && slices.ContainsFunc(needs.Paths, func(path string) bool { return isWithin(path, c.Path) }):
			return "waits for " + at, c.Queued
		case !c.Queued || waited >= queuedBound:
		case c.Path != "" && slices.ContainsFunc(needs.Paths, func(path string) bool { return isWithin(c.Path, path) }),
			c.Path == "" && (c.Unit == networkUnit || slices.Contains(needs.Units, c.Unit)):
			return "waits for " + at, true
		}
	}
	return "", false
}

// isWithin reports whether path is folder or below it.
func isWithin(path, folder string) bool {
	rest, found := strings.CutPrefix(path, strings.TrimSuffix(folder, "/"))
	return found && (rest == "" || rest[0] == '/')
}

// hostCheckBound bounds reading files of the host, because a network filesystem may hang.
const hostCheckBound = 2 * time.Second

// maxReads is the maximum number of parallel reads: each that hangs keeps a thread.
const maxReads = 64

// host reads the files of the host as the runtimes see them. The service of hostler has its own
// /dev and /tmp.
type host struct {
	proc  string
	slots chan struct{} // has an element for each read

	mu      sync.Mutex
	reading map[pending]bool // containers with a read that has not returned
}

func newHost(proc string) *host {
	return &host{proc: proc, slots: make(chan struct{}, maxReads), reading: map[pending]bool{}}
}

func (h *host) root() string { return filepath.Join(h.proc, "1", "root") }

// readEach reads files of each container, and returns what it got in time. It reads nothing of a
// container while an earlier read of its files hangs.
func readEach[T any](ctx context.Context, h *host, needs map[pending]need, read func(need) T) map[pending]T {
	ctx, cancel := context.WithTimeout(ctx, hostCheckBound)
	defer cancel()
	type answer struct {
		id    pending
		value T
	}
	answers := make(chan answer, len(needs))
	asked := 0
	for id, n := range needs {
		if !h.begin(ctx, id) {
			continue
		}
		asked++
		go func() {
			value := read(n)
			h.end(id)
			answers <- answer{id, value}
		}()
	}
	got := map[pending]T{}
	for range asked {
		select {
		case a := <-answers:
			got[a.id] = a.value
		case <-ctx.Done():
			return got
		}
	}
	return got
}

// begin reports whether files of a container may be read now.
func (h *host) begin(ctx context.Context, id pending) bool {
	h.mu.Lock()
	hangs := h.reading[id]
	h.mu.Unlock()
	if hangs {
		return false
	}
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	h.mu.Lock()
	h.reading[id] = true
	h.mu.Unlock()
	return true
}

func (h *host) end(id pending) {
	<-h.slots
	h.mu.Lock()
	delete(h.reading, id)
	h.mu.Unlock()
}

// resolve returns the paths of each container, with the targets of symbolic links in them. It leaves
// out containers whose paths it cannot read in time.
func (h *host) resolve(ctx context.Context, needs map[pending]need) map[pending][]string {
	return readEach(ctx, h, needs, func(n need) []string {
		paths := slices.Clone(n.Paths)
		for _, path := range n.Paths {
			paths = append(paths, targets(h.root(), path)...)
		}
		return paths
	})
}

// maxLinks is the maximum number of symbolic links in a path, as in the kernel.
const maxLinks = 40

// targets returns the paths below root that the symbolic links in a path lead to.
func targets(root, path string) (found []string) {
	path = filepath.Clean(path)
	for range maxLinks {
		next := ""
		for at := path; at != "/" && at != "."; at = filepath.Dir(at) { // the link nearest to the root counts first
			if target, err := os.Readlink(filepath.Join(root, at)); err == nil {
				if !filepath.IsAbs(target) {
					target = filepath.Join(filepath.Dir(at), target)
				}
				next = filepath.Join(target, strings.TrimPrefix(path, at))
			}
		}
		if next == "" {
			return found
		}
		path = next
		found = append(found, path)
	}
	return found
}

// pictures describes the state of each container's paths: their mounts, and which of them exist. A
// picture changes when a volume or a device appears. There is none if the state cannot be read, for
// example because a file server hangs.
func (h *host) pictures(ctx context.Context, needs map[pending]need) map[pending]string {
	if len(needs) == 0 {
		return nil
	}
	mounts := h.mounts()
	return readEach(ctx, h, needs, func(n need) string {
		var seen strings.Builder
		for _, m := range mounts {
			if slices.ContainsFunc(n.Paths, func(path string) bool { return isWithin(path, m.Mountpoint) || isWithin(m.Mountpoint, path) }) {
				fmt.Fprintln(&seen, m.ID, m.Mountpoint)
			}
		}
		for _, path := range n.Paths {
			_, err := os.Lstat(filepath.Join(h.root(), path))
			fmt.Fprintln(&seen, path, err == nil)
		}
		return seen.String()
	})
}

// mounts returns the mounts of the host; none if they cannot be read.
func (h *host) mounts() []*mounts.Info {
	list, err := mounts.Read(filepath.Join(h.proc, "1", "mountinfo"), nil)
	if err != nil {
		return nil
	}
	return list
}
