package restart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/sys/mountinfo"

	"hostler.io/hostler/internal/bounded"
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
	// links. It returns false if the runtime did not report them.
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
		return "waits for its runtime to report its dependencies", true
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

// host reads the files of the host as the runtimes see them. The service of hostler has its own
// /dev and /tmp. It is safe for concurrent use.
type host struct {
	proc  string
	hangs atomic.Bool // an earlier check has not returned
}

func (h *host) root() string { return filepath.Join(h.proc, "1", "root") }

// checkHost calls f, which reads files, and reports whether it returned in time. It does not call f
// while an earlier call hangs.
func (h *host) checkHost(ctx context.Context, f func()) bool {
	if !h.hangs.CompareAndSwap(false, true) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, hostCheckBound)
	defer cancel()
	return bounded.Call(ctx, func() error {
		defer h.hangs.Store(false)
		f()
		return nil
	}) == nil
}

// resolve adds the targets of symbolic links in each path.
func (h *host) resolve(ctx context.Context, paths []string) []string {
	var found []string
	if !h.checkHost(ctx, func() {
		for _, path := range paths {
			found = append(found, targets(h.root(), path)...)
		}
	}) {
		return paths
	}
	return append(slices.Clone(paths), found...)
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

// picture describes the state of paths: their mounts, and which of them exist. It changes when a
// volume or a device appears. It is empty if the state cannot be read, for example because a file
// server hangs.
func (h *host) picture(ctx context.Context, paths []string) string {
	var mounts strings.Builder
	for _, m := range h.mounts() {
		if slices.ContainsFunc(paths, func(path string) bool { return isWithin(path, m.Mountpoint) || isWithin(m.Mountpoint, path) }) {
			fmt.Fprintln(&mounts, m.ID, m.Mountpoint)
		}
	}
	files := new(strings.Builder) // not shared with a call that hangs
	if !h.checkHost(ctx, func() {
		for _, path := range paths {
			_, err := os.Lstat(filepath.Join(h.root(), path))
			fmt.Fprintln(files, path, err == nil)
		}
	}) {
		return ""
	}
	return mounts.String() + files.String()
}

// mounts returns the mounts of the host; none if they cannot be read.
func (h *host) mounts() []*mountinfo.Info {
	f, err := os.Open(filepath.Join(h.proc, "1", "mountinfo"))
	if err != nil {
		return nil
	}
	defer f.Close()
	list, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil
	}
	return list
}
