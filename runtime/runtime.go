// Package runtime defines what hostler uses of a container runtime: pods with their containers,
// images, their filesystems, and the operations on them. Adapters (runtime/cri and others)
// translate a runtime's own API into these types. Code outside an adapter does not know which
// runtime it uses.
//
// The package has the name of the standard library's runtime, which is imported as goruntime if
// both are needed.
package runtime

import (
	"slices"
	"time"
)

// Pod is a group of containers with a common lifetime: a CRI sandbox, a Podman pod, a Compose
// project, or a single container.
type Pod struct {
	Runtime   string // name of its runtime, such as "containerd"
	ID        string // the runtime's ID, unique within the runtime
	UID       string // the orchestrator's ID; equal to ID if there is no orchestrator
	Name      string
	Namespace string // empty if the runtime has no namespaces

	// Ready reports whether the pod's sandbox is alive. A pod that is not ready
	// may still have containers to remove.
	Ready     bool
	CreatedAt time.Time

	// Sandbox means that the pod is a sandbox, as in CRI. Once it is not ready, it never becomes
	// ready again. It stays until it is removed separately, after its containers.
	Sandbox bool

	// Gone means that the pod has no sandbox any more: the runtime only has its remaining
	// containers.
	Gone bool

	Labels      map[string]string
	Annotations map[string]string

	// Containers are all containers of the pod that the runtime still has, including dead ones, in
	// order of creation.
	Containers []Container
}

// ProjectPrefix begins the ID of a pod that is a Compose project. Other IDs have no colon. A project
// may have the name of a container.
const ProjectPrefix = "compose:"

// Container is a container as the runtime last reported it. It is a flat record: each field is a
// property that runtimes report.
type Container struct {
	Runtime string
	ID      string
	PodID   string // ID of its Pod
	Name    string

	Image   string // reference from which the container was created, as the runtime reports it
	ImageID string // ID of its Image

	State      ContainerState
	CreatedAt  time.Time
	StartedAt  time.Time // start of its latest run, whose end is FinishedAt; zero if unknown
	FinishedAt time.Time // zero unless State is Exited and the runtime knows when
	ExitCode   int32     // meaningful only if FinishedAt is not zero

	// Restarting means that the container, whose State is Running, has ended and waits for its
	// restart policy to start it.
	Restarting bool
	// Restart says who starts the container again after the host was down.
	Restart Restart

	// Incomplete means that the runtime has not returned the container's details yet: Restart,
	// StopTimeout and StopsBefore are unknown.
	Incomplete bool
	// StopTimeout is the stop timeout with which the container was created; nil if there is none.
	StopTimeout *time.Duration
	// Unit is the systemd unit whose stop stops the container; empty if there is none, or if the
	// runtime does not report it.
	Unit string
	// UnitGrace is the stop timeout of Unit, after which systemd kills the processes; nil if it is
	// unlimited or unknown.
	UnitGrace *time.Duration
	// StopsBefore are IDs of containers of the same runtime on which this one depends while it
	// runs. They are sent the stop signal only after this one has ended.
	StopsBefore []string
	// Joins are the containers of StopsBefore without which this one cannot start, such as one
	// whose network it shares.
	Joins []string
	// StopsAfter are systemd units that stop before the container, because systemd orders them
	// after the container's unit. No runtime reports them: plan.Order.Apply adds them.
	StopsAfter []string

	Labels      map[string]string
	Annotations map[string]string
}

// Image is one image in a runtime's store.
type Image struct {
	Runtime string
	ID      string
	Tags    []string // references with a tag, such as "docker.io/library/nginx:1.27"
	Digests []string // references with a digest; empty for an image that was built on this host

	// SizeBytes is the size that the runtime reports. It is only an estimate: it may be compressed,
	// and includes layers that other images share.
	SizeBytes uint64
	// SharedBytes is how much of SizeBytes is shared with other images. It is valid only if
	// SharedKnown.
	SharedBytes uint64
	SharedKnown bool

	// Pinned means that the runtime wants to keep the image.
	Pinned bool

	// CreatedAt is when the image was added to this store, last pulled or last named, if the
	// runtime reports it; otherwise zero. It is not the build date in the image.
	CreatedAt time.Time

	Labels map[string]string
	// LabelsUnknown means that the runtime has labels of this image, but has not reported them yet.
	// Until then, nothing may be done that they could forbid.
	LabelsUnknown bool
}

// OwnBytes is how much of SizeBytes is not shared, or all of it if the runtime does not report
// that.
func (i Image) OwnBytes() uint64 {
	if !i.SharedKnown {
		return i.SizeBytes
	}
	return i.SizeBytes - min(i.SharedBytes, i.SizeBytes)
}

// Names returns all references to the image, tags before digests, or its ID if there are none.
func (i Image) Names() []string {
	names := make([]string, 0, len(i.Tags)+len(i.Digests)+1)
	names = append(append(names, i.Tags...), i.Digests...)
	if len(names) == 0 {
		names = append(names, i.ID)
	}
	return names
}

// Layer is a part of images that takes space once, even if several images share it: a snapshot, a
// layer of a storage driver, or a blob. Its space is freed when it has no users.
type Layer struct {
	Runtime string
	Bytes   uint64
	Inodes  uint64   // 0 if the runtime does not report them
	Images  []string // IDs of the images that use it
	// Users are its other users: IDs of containers, including dead ones, or other names.
	Users []string
}

// Owned is space on the filesystem of a runtime, and its owner.
type Owned struct {
	Folder    string // that takes the space; empty if there are several, and Bytes has the size
	Bytes     uint64
	Container string // ID of its container, if any
	By        string // owner if no list of pods has the container, such as "images in containerd's namespace default"
}

// ImageUser is a user of an image that is not a container of a Pod.
type ImageUser struct {
	Image string // ID or reference, as the runtime reports it
	By    string // the user in plain text, such as "container builder"
}

// Filesystem is the mount on which a runtime keeps images or containers.
type Filesystem struct {
	Runtime    string
	Path       string // folder that the runtime reports, symbolic links resolved
	Mountpoint string
	Device     string // source of the mount, such as "/dev/sda2" or "tmpfs"

	// ID identifies the filesystem, and is equal for two mounts of it, such as a bind mount and its
	// source; empty if unknown.
	ID string
}

// Info is a runtime's description of itself.
type Info struct {
	Name     string // such as "containerd"
	Version  string
	Endpoint string

	Ready   bool
	Message string // why it is not Ready, or a warning

	NetworkReady   bool
	NetworkMessage string

	// Imageless means that the runtime has no images: its containers are created from folders.
	Imageless bool

	// SandboxImage is the image of every pod's sandbox, if the runtime reports it. It is in use
	// even if no container refers to it.
	SandboxImage string
}

// Health is the last answer of a runtime.
type Health struct {
	// Info is the answer. If the runtime did not answer, Name and Endpoint are set, Ready is false,
	// Message is the error, and Version may be the last known one.
	Info
	// Since is when Ready last changed, or when the runtime was first queried; zero if unknown.
	Since time.Time
}

// ContainerState is the lifecycle state of a container.
type ContainerState int

// The states that hostler distinguishes.
const (
	Unknown ContainerState = iota // the runtime does not know
	Created                       // created, never started
	Running                       // started, even if paused
	Exited                        // started and ended
)

var stateNames = [...]string{Unknown: "Unknown", Created: "Created", Running: "Running", Exited: "Exited"}

// String returns the state's name in `hostler ps`.
func (s ContainerState) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return stateNames[Unknown]
	}
	return stateNames[s]
}

// MarshalText returns the state's name for JSON and YAML.
func (s ContainerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Restart says who starts a container again after the host was down.
type Restart int

// The cases that hostler distinguishes.
const (
	RestartUnknown       Restart = iota // the runtime does not report it, or an orchestrator decides
	RestartNever                        // nobody
	RestartByRuntime                    // its runtime, as its policy says, even after a manual stop
	RestartUnlessStopped                // its runtime, except after a stop by somebody such as hostler; so hostler starts it
	RestartByUnit                       // its systemd unit, if that is enabled
	RestartNotAtBoot                    // its runtime while the host runs, nobody after a boot
	RestartElsewhere                    // its creator, if anybody: its runtime runs it once
)

var restartNames = [...]string{"unknown", "never", "by-runtime", "unless-stopped", "by-unit", "not-at-boot", "elsewhere"}

// String returns the name in `hostler shutdown plan -o json`.
func (r Restart) String() string {
	if r < 0 || int(r) >= len(restartNames) {
		return restartNames[RestartUnknown]
	}
	return restartNames[r]
}

// MarshalText returns the name for JSON and YAML.
func (r Restart) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the result of MarshalText. Unknown names become RestartUnknown.
func (r *Restart) UnmarshalText(text []byte) error {
	*r = Restart(max(slices.Index(restartNames[:], string(text)), 0))
	return nil
}

// EventType is the type of a change.
type EventType int

// The types that a Watcher reports. An adapter that does not know the type sends Changed, after
// which the receiver lists again. Changed with an Image means that this image got another name,
// content or labels.
const (
	Changed EventType = iota
	ContainerStarted
	ContainerExited
	ContainerRemoved
	ImageAdded
	ImageRemoved
	ContainerCreated
)

// Event is one change in a runtime. It says what to list again; only lists have the state.
type Event struct {
	Runtime     string
	Type        EventType
	ContainerID string // set for container events
	// Image is a name or ID as the runtime reports it: of the image in image events, of the
	// container's image in ContainerCreated.
	Image string
	Time  time.Time
}

// Labels and annotations with which the author of a container controls how hostler treats it. On
// CRI pods, annotations count as well.
const (
	LabelCritical    = "hostler.io/critical"     // "true": stopped in the last phases
	LabelPriority    = "hostler.io/priority"     // a 32-bit integer, as a Kubernetes priority
	LabelKeep        = "hostler.io/keep"         // any value but "false": never collected
	LabelGracePeriod = "hostler.io/grace-period" // a duration, such as "90s"

	// LabelTerminationGracePeriod is set by kubelets, in seconds.
	LabelTerminationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"
)
