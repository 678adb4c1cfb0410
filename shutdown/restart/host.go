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

// PendingUnit is a systemd unit that this boot is still to bring up.
type PendingUnit struct {
	Unit   string
	Path   string // where it mounts; empty for a unit that is none of a mount
	Queued bool   // it has a start job; else it is a mount that is not there
}

// HostFacts is what containers need of the host, and what of that is still to come.
type HostFacts struct {
	// Needs is what each container needs, whose Paths have the targets of symbolic links as well.
	// It reports false for one whose runtime did not return that.
	Needs        func(journal.Restart) (runtime.StartNeeds, bool)
	PendingUnits []PendingUnit
	NoAnswer     bool // systemd has not returned what is still to come
}

const (
	// networkUnit is what the runtimes' own services wait for before they start containers.
	networkUnit = "network-online.target"
	// queuedBound is how long the network is waited for, another unit that starts containers, and
	// mounts below a folder that a container gets.
	queuedBound = 10 * time.Minute
)

// awaited says what a container waits for; empty if for nothing. A mount that holds what the
// container gets is waited for also if it has failed: with the folder below it, the container would
// write to another place than before.
func (h *HostFacts) awaited(r journal.Restart, waited time.Duration) (reason string, queued bool) {
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

// isWithin reports whether a path is a folder or below it.
func isWithin(path, folder string) bool {
	rest, found := strings.CutPrefix(path, strings.TrimSuffix(folder, "/"))
	return found && (rest == "" || rest[0] == '/')
}

// hostCheckBound is how long files of the host are searched for: what is on another host may hang.
const hostCheckBound = 2 * time.Second

// host reads the files of the host as the runtimes see them. hostler itself has other devices, and
// another /tmp. It is safe for concurrent use.
type host struct {
	proc  string
	hangs atomic.Bool // a check of files has not returned
}

func (h *host) root() string { return filepath.Join(h.proc, "1", "root") }

// checkHost calls f, which reads files, and reports whether it returned in time. Nothing is read
// while an earlier check hangs.
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

// resolve adds the targets of symbolic links on the way to each path.
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

// maxLinks is how many symbolic links are followed, as by the kernel.
const maxLinks = 40

// targets are what the symbolic links on the way to a path lead to, below root.
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

// picture is what is seen of paths: their mounts, and which of them exist. It is another one once a
// volume or a device has come. It is empty if that cannot be seen, as of a file server that hangs.
func (h *host) picture(ctx context.Context, paths []string) string {
	var mounts strings.Builder
	for _, m := range h.mounts() {
		if slices.ContainsFunc(paths, func(path string) bool { return isWithin(path, m.Mountpoint) || isWithin(m.Mountpoint, path) }) {
			fmt.Fprintln(&mounts, m.ID, m.Mountpoint)
		}
	}
	files := new(strings.Builder) // not shared with a check that hangs
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

// mounts are those of the host; none if it does not show them.
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
