package gc

import (
	"cmp"
	"math/bits"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
)

// Facts is the input of a plan: the last lists of the runtimes. A runtime that did not answer
// completely is left out, so nothing of it is removed.
type Facts struct {
	Images      []ImageFact
	Pods        []runtime.Pod
	Filesystems []Usage // one for each filesystem on which a runtime keeps images

	// Layers are what images consist of, of the runtimes that were asked and report it.
	Layers []runtime.Layer
	// Fruitless has the filesystems on which earlier removals freed nothing.
	Fruitless map[string]Fruitless

	// SandboxImages maps a runtime's name to the image of its sandboxes, where
	// the runtime reports it.
	SandboxImages map[string]string
	// ProtectedPods are the IDs of pods that a shutdown or drain stopped, with the reason. Their dead
	// containers stay. A pod that its orchestrator created again has another ID and is not protected.
	ProtectedPods map[PodKey]Kept

	// Kubelet reports that a kubelet on this host makes pods' sandboxes again, and
	// reads from the newest one how a pod fared.
	Kubelet bool
	// Logs are the log folders of pods and the links to logs on this host.
	Logs []LogFact
	// LogsUnsure says why Pods may be incomplete, so that no log counts as belonging to a missing
	// pod; empty if Pods is complete.
	LogsUnsure string
	LogsErr    error // why some logs could not be read
	// ProtectedLogs is ProtectedPods by UID: the directory of a pod's logs has its UID.
	ProtectedLogs map[string]Kept
}

// Kept is why something stays.
type Kept struct {
	Reason Reason
	Detail string // the explanation for a person
}

// LogFact is the log folder of a pod, or a link to the log of a container, as CRI
// runtimes and kubelet make them below /var/log.
type LogFact struct {
	Path string // of the folder or the link
	// Link reports which of the two it is. Only links that lead nowhere are facts.
	Link bool

	Namespace, Pod, UID string // of a folder
	ContainerID         string // of a link

	ModifiedAt time.Time // the latest change in the folder, or the link's making
	SizeBytes  uint64    // of the folder's files
	// Foreign says what in the folder is not a CRI runtime's; empty if all is.
	Foreign string
}

// PodKey names a pod: the runtime's name and the ID there.
type PodKey struct{ Runtime, ID string }

// ImageFact is an image with facts that its runtime does not have.
type ImageFact struct {
	runtime.Image
	FirstSeen time.Time // first seen or last pulled; zero if unknown, which counts as now
	LastUsed  time.Time // zero if no use is known
	// UsedBy names users that no pod list shows, see runtime.ImageUsers.
	UsedBy []string
}

// Usage is how full a filesystem is.
type Usage struct {
	runtime.Filesystem
	CapacityBytes  uint64
	AvailableBytes uint64 // what an ordinary user may still take (f_bavail)
	Inodes         uint64 // 0 where the filesystem has no fixed number, as on btrfs
	InodesFree     uint64
	Err            error // why the figures are unknown
}

// UsedPercent is how much of the space is used, rounded up, and 0 where the
// figures make no sense. Blocks reserved for root count as used, as in kubelet.
func (u Usage) UsedPercent() int { return usedPercent(u.CapacityBytes, u.AvailableBytes) }

// InodesUsedPercent is how many of the inodes are used, rounded up, and 0 where
// the filesystem has no fixed number of them.
func (u Usage) InodesUsedPercent() int { return usedPercent(u.Inodes, u.InodesFree) }

// Problem says why the figures cannot be acted on; empty if they can.
func (u Usage) Problem() string {
	switch {
	case u.Err != nil:
		return "usage unknown: " + u.Err.Error()
	case u.CapacityBytes == 0:
		return "capacity is 0"
	case u.AvailableBytes > u.CapacityBytes:
		return "more space available than there is"
	case u.InodesFree > u.Inodes:
		return "more inodes free than there are"
	}
	return ""
}

// Name is what images and filesystems refer to each other by: the mount point,
// or the runtime's own folder where that is not known. Two runtimes that share a
// filesystem name it alike.
func (u Usage) Name() string { return cmp.Or(u.Mountpoint, u.Path) }

func usedPercent(total, free uint64) int {
	if total == 0 || free > total {
		return 0
	}
	hi, lo := bits.Mul64(free, 100)
	percent, _ := bits.Div64(hi, lo, total)
	return 100 - int(percent)
}

// missing is how much has to become free until no more than percent is used.
func missing(total, free uint64, percent int) uint64 {
	hi, lo := bits.Mul64(total, uint64(100-percent))
	want, rest := bits.Div64(hi, lo, 100)
	if rest > 0 {
		want++
	}
	return want - min(want, free)
}

// age is the time since t; 0 for a time that is unknown or, after a step of the
// clock, in the future.
func age(now, t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, now.Sub(t))
}

// untilRemoval says when an object that is too young may be removed, after what else explains it.
func untilRemoval(left time.Duration, details ...string) string {
	seconds := (left + time.Second - 1).Truncate(time.Second) // 0s would be now
	return strings.Join(append(details, "may be removed in "+seconds.String()), "; ")
}
