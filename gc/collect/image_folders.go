package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
)

const (
	// weighTimeout bounds a check of what fills a filesystem.
	weighTimeout = 10 * time.Second
	// weighAgain is how often automatic runs read folders again while nothing changes
	// there: that is work, on a disk that is busy as it is.
	weighAgain = time.Hour
	// changedShare is the part of a filesystem by which its free space differs where
	// something else may fill it now.
	changedShare = 100
	// maxFolders is how many folders are named of a filesystem.
	maxFolders = 8
	// smallShare is the part of a filesystem's used space or inodes below which a folder is not named.
	smallShare = 200
)

// weighing is when folders were last weighed, how much was free then, and what came of it.
type weighing struct {
	at                   time.Time
	freeBytes, freeInode uint64
	folders              []gc.Folder
}

// folders names the largest folders of the filesystem, with whose they are.
func (r *imageRun) folders(ctx context.Context, fs gc.FilesystemDecision) []gc.Folder {
	weigher, able := r.survey.Meter.(survey.Weigher)
	if !able {
		return nil
	}
	usage := r.usage(fs.Filesystem)
	last, known := r.collector.weighed[fs.Filesystem]
	if !known || time.Since(last.at) >= weighAgain || r.report.Requested() || last.differs(usage) {
		byInodes := fs.InodesToFree > 0 && fs.BytesToFree == 0
		last = weighing{time.Now(), usage.AvailableBytes, usage.InodesFree, r.weigh(ctx, weigher, fs.Filesystem, byInodes)}
		r.collector.weighed[fs.Filesystem] = last
	}
	return last.folders
}

// differs reports whether something may fill the filesystem that did not when it was weighed.
func (w weighing) differs(u gc.Usage) bool {
	change := func(a, b uint64) uint64 { return max(a, b) - min(a, b) }
	return change(w.freeBytes, u.AvailableBytes) > u.CapacityBytes/changedShare || change(w.freeInode, u.InodesFree) > u.Inodes/changedShare
}

// weigh reads the filesystem, from where the first of its runtimes sees it that can.
func (r *imageRun) weigh(ctx context.Context, weigher survey.Weigher, filesystem string, byInodes bool) []gc.Folder {
	var folders []gc.Folder
	var runtimes []string
	for _, u := range r.facts.Filesystems {
		if u.Name() != filesystem {
			continue
		}
		if runtimes = append(runtimes, u.Runtime); len(folders) > 0 {
			continue
		}
		var err error
		folders, err = runtime.Within(ctx, weighTimeout, func(ctx context.Context) ([]gc.Folder, error) {
			return weigher.Folders(ctx, u.Filesystem, byInodes)
		})
		if err != nil {
			r.log.Debug("cannot measure folders", "runtime", u.Runtime, "filesystem", filesystem, "error", err)
		}
	}
	owned := r.ownedSpace(ctx, runtimes)
	for i := range folders {
		folders[i].MeasuredAt = time.Now()
		folders[i].Of = r.ownerOf(folders[i].Path, owned)
	}
	for _, space := range owned {
		if space.Folder == "" && space.Bytes > 0 && !byInodes {
			folders = append(folders, gc.Folder{Filesystem: filesystem, SizeBytes: space.Bytes, Of: space.By, MeasuredAt: time.Now()})
		}
	}
	slices.SortStableFunc(folders, func(a, b gc.Folder) int {
		if byInodes {
			return cmp.Compare(b.Inodes, a.Inodes)
		}
		return cmp.Compare(b.SizeBytes, a.SizeBytes)
	})
	usage := r.usage(filesystem)
	folders = slices.DeleteFunc(folders, func(f gc.Folder) bool {
		if byInodes {
			return f.Inodes < (usage.Inodes-min(usage.InodesFree, usage.Inodes))/smallShare
		}
		return f.SizeBytes < (usage.CapacityBytes-min(usage.AvailableBytes, usage.CapacityBytes))/smallShare
	})
	return folders[:min(len(folders), maxFolders)]
}

// ownedSpace returns the space on the filesystems of runtimes, with its owners.
func (r *imageRun) ownedSpace(ctx context.Context, names []string) []runtime.Owned {
	var all []runtime.Owned
	for _, name := range names {
		owner, able := r.runtimes[name].(runtime.SpaceOwner)
		if !able {
			continue
		}
		owned, err := runtime.Within(ctx, survey.Timeout, owner.OwnedSpace)
		if err != nil && !errors.Is(err, runtime.ErrUnsupported) {
			r.log.Debug("runtime does not report space per owner", "runtime", name, "error", err)
		}
		all = append(all, owned...)
	}
	return all
}

// podLogs is where CRI runtimes and kubelet keep the logs of pods, in a folder for each that is
// called NAMESPACE_NAME_UID.
const podLogs = "/var/log/pods/"

// ownerOf returns the owner of a folder; empty if it is unknown.
func (r *imageRun) ownerOf(folder string, owned []runtime.Owned) string {
	if at := strings.Index(folder+"/", podLogs); at >= 0 {
		name, _, _ := strings.Cut(folder[min(len(folder), at+len(podLogs)):], "/")
		if parts := strings.SplitN(name, "_", 3); len(parts) == 3 {
			return "log of pod " + parts[0] + "/" + parts[1]
		}
	}
	for _, space := range owned {
		if space.Folder == "" || folder != space.Folder && !strings.HasPrefix(folder, space.Folder+"/") {
			continue
		}
		for i := range r.facts.Pods {
			for _, c := range r.facts.Pods[i].Containers {
				if c.ID == space.Container {
					return "written by container " + path.Join(r.facts.Pods[i].Namespace, r.facts.Pods[i].Name, c.Name)
				}
			}
		}
		return "written by " + space.By
	}
	return ""
}

// describe writes what fills a filesystem for a person, with its age unless it is new.
func describe(folders []gc.Folder) string {
	var text strings.Builder
	text.WriteString("largest folders on it")
	if age := time.Since(folders[0].MeasuredAt).Round(time.Second); age >= time.Minute {
		fmt.Fprintf(&text, " %s ago", age)
	}
	if slices.ContainsFunc(folders, func(f gc.Folder) bool { return f.AtLeast }) {
		text.WriteString(", as far as they could be read in time")
	}
	text.WriteString(":")
	for i, f := range folders {
		if i > 0 {
			text.WriteString(",")
		}
		switch {
		case f.Path == "":
			fmt.Fprintf(&text, " %s (%s)", f.Of, gc.Size(f.SizeBytes))
		case f.Of != "":
			fmt.Fprintf(&text, " %s (%s, %d inodes, %s)", f.Path, gc.Size(f.SizeBytes), f.Inodes, f.Of)
		default:
			fmt.Fprintf(&text, " %s (%s, %d inodes)", f.Path, gc.Size(f.SizeBytes), f.Inodes)
		}
	}
	return text.String()
}
