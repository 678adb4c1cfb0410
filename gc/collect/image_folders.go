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
	// weighTimeout bounds measuring the folders of a filesystem.
	weighTimeout = 10 * time.Second
	// weighAgain is the interval at which automatic runs measure folders again if nothing changes,
	// because that reads much from a busy disk.
	weighAgain = time.Hour
	// changedShare: if the free space changes by this fraction of the filesystem, the folders are
	// measured again.
	changedShare = 100
	// maxFolders is the maximum number of folders listed for a filesystem.
	maxFolders = 8
	// smallShare: folders below this fraction of the used space or inodes are not listed.
	smallShare = 200
)

// weighing is the result of measuring folders, with the time and the free space at that time.
type weighing struct {
	at                   time.Time
	freeBytes, freeInode uint64
	folders              []gc.Folder
}

// folders returns the largest folders of the filesystem, with their owners.
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

// differs reports whether the free space has changed much since the folders were measured.
func (w weighing) differs(u gc.Usage) bool {
	change := func(a, b uint64) uint64 { return max(a, b) - min(a, b) }
	return change(w.freeBytes, u.AvailableBytes) > u.CapacityBytes/changedShare || change(w.freeInode, u.InodesFree) > u.Inodes/changedShare
}

// weigh measures the folders of the filesystem, as the first of its runtimes that supports it sees
// them.
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

// ownedSpace returns the space that runtimes report as used, with its owners.
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

// podLogs is where CRI runtimes and kubelet keep the logs of pods. Each pod has a folder
// NAMESPACE_NAME_UID.
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

// describe describes what fills a filesystem, with the age of the measurement unless it is new.
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
