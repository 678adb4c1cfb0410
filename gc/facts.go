package gc

import (
	"cmp"
	"math/bits"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
)

// Facts is the input of a plan. It has the latest lists of the runtimes. Runtimes whose answer is
// incomplete are missing, so that nothing of them is removed.
type Facts struct {
	Images      []ImageFact
	Pods        []runtime.Pod
	Filesystems []Usage // one for each image filesystem of a runtime

	// Layers are the layers of images, of the runtimes that report them.
	Layers []runtime.Layer
	// Fruitless has the filesystems on which earlier removals freed nothing.
	Fruitless map[string]Fruitless

	// SandboxImages maps the name of a runtime to its sandbox image, if the runtime reports it.
	SandboxImages map[string]string
	// ProtectedPods are the pods that a shutdown or drain stopped, with the reason. Their dead
	// containers are kept. If an orchestrator creates such a pod again, it has another ID and is
	// not protected.
	ProtectedPods map[PodKey]Kept

	// Kubelet reports that a kubelet on this host creates sandboxes again, and reads the last state
	// of a pod from its newest sandbox.
	Kubelet bool
	// Logs are the log folders of pods and the dangling links to logs on this host.
	Logs []LogFact
	// LogsUnsure says why Pods may be incomplete. Then no log counts as orphaned. It is empty if
	// Pods is complete.
	LogsUnsure string
	LogsErr    error // why some logs could not be read
	// ProtectedLogs is ProtectedPods by UID: the directory of a pod's logs has its UID.
	ProtectedLogs map[string]Kept
}

// Kept is why an object is kept.
type Kept struct {
	Reason Reason
	Detail string // explanation for users
}

// LogFact is the log folder of a pod, or a link to the log of a container. CRI runtimes and kubelet
// create them below /var/log.
type LogFact struct {
	Path string // of the folder or the link
	// Link reports whether it is a link. Only dangling links are facts.
	Link bool

	Namespace, Pod, UID string // of a folder
	ContainerID         string // of a link

	ModifiedAt time.Time // latest change in the folder, or the creation of the link
	SizeBytes  uint64    // of the folder's files
	// Foreign describes content of the folder that a CRI runtime did not create; empty if there is
	// none.
	Foreign string
}

// PodKey identifies a pod: the runtime's name and the pod ID there.
type PodKey struct{ Runtime, ID string }

// ImageFact is an image with facts that its runtime does not report.
type ImageFact struct {
	runtime.Image
	FirstSeen time.Time // first seen or last pulled; zero if unknown, which counts as now
	LastUsed  time.Time // zero if no use is known
	// UsedBy names users that no list of pods contains; see runtime.ImageUsers.
	UsedBy []string
}

// Usage is the usage of a filesystem.
type Usage struct {
	runtime.Filesystem
	CapacityBytes  uint64
	AvailableBytes uint64 // available to ordinary users (f_bavail)
	Inodes         uint64 // 0 if the filesystem has no fixed number, as on btrfs
	InodesFree     uint64
	Err            error // why the figures are unknown
}

// UsedPercent is the used percentage of the space, rounded up; 0 if the figures are invalid. Blocks
// reserved for root count as used, as in kubelet.
func (u Usage) UsedPercent() int { return usedPercent(u.CapacityBytes, u.AvailableBytes) }

// InodesUsedPercent is the used percentage of the inodes, rounded up; 0 if the filesystem has no
// fixed number of inodes.
func (u Usage) InodesUsedPercent() int { return usedPercent(u.Inodes, u.InodesFree) }

// Problem says why the figures cannot be used; empty if they can.
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

// Name identifies the filesystem in decisions: its mount point, or the runtime's folder if the
// mount point is unknown. Two runtimes on one filesystem use the same name.
func (u Usage) Name() string { return cmp.Or(u.Mountpoint, u.Path) }

func usedPercent(total, free uint64) int {
	if total == 0 || free > total {
		return 0
	}
	hi, lo := bits.Mul64(free, 100)
	percent, _ := bits.Div64(hi, lo, total)
	return 100 - int(percent)
}

// missing is how much must be freed until at most percent is used.
func missing(total, free uint64, percent int) uint64 {
	hi, lo := bits.Mul64(total, uint64(100-percent))
	want, rest := bits.Div64(hi, lo, 100)
	if rest > 0 {
		want++
	}
	return want - min(want, free)
}

// age is the time since t. It is 0 if t is unknown, or in the future because the clock was changed.
func age(now, t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, now.Sub(t))
}

// untilRemoval returns when an object that is too young may be removed, after the other details.
func untilRemoval(left time.Duration, details ...string) string {
	seconds := (left + time.Second - 1).Truncate(time.Second) // rounded up, because 0s would mean now
	return strings.Join(append(details, "may be removed in "+seconds.String()), "; ")
}
