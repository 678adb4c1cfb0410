// Package runtime defines what hostler uses of a container runtime: pods with their containers,
// images, the filesystems that hold them, and the few operations on them. Adapters (runtime/cri
// and its siblings) translate a runtime's own API into these types; nothing outside an adapter
// knows which runtime it uses.
//
// The package shadows the standard library's runtime, which is imported as
// goruntime where both are needed.
package runtime

import (
	"slices"
	"time"
)

// Pod is a group of containers that live and die together: a CRI sandbox, a
// Podman pod, a Compose project, or a lone container.
type Pod struct {
	Runtime   string // name of the runtime that runs it, such as "containerd"
	ID        string // the runtime's own key, unique within the runtime
	UID       string // the orchestrator's key; ID where there is no orchestrator
	Name      string
	Namespace string // empty where the runtime has no such notion

	// Ready reports whether the pod's sandbox is alive. A pod that is not ready
	// may still have containers to remove.
	Ready     bool
	CreatedAt time.Time

	// Sandbox reports that the pod is a sandbox, as under CRI: once it is not ready
	// it never is again, and it stays until it is removed for itself, after its
	// containers.
	Sandbox bool

	// Gone reports that the runtime knows the pod only from containers it left
	// behind: there is no sandbox of this ID any more.
	Gone bool

	Labels      map[string]string
	Annotations map[string]string

	// Containers holds every container of the pod that the runtime still
	// knows, dead ones included, in the order in which they were created.
	Containers []Container
}

// Container is one container as the runtime last reported it. It is a flat record: each
// field is a property that runtimes report.
type Container struct {
	Runtime string
	ID      string
	PodID   string // ID of the Pod it belongs to
	Name    string

	Image   string // reference the container was created from, as the runtime gives it
	ImageID string // ID of the Image it uses

	State      ContainerState
	CreatedAt  time.Time
	StartedAt  time.Time // when its latest run began, which FinishedAt ended; zero where that is not known
	FinishedAt time.Time // zero unless State is Exited and the runtime knows when
	ExitCode   int32     // meaningful only if FinishedAt is not zero

	// Restarting reports that the container, whose State is Running, has ended and waits for
	// its restart policy to start it.
	Restarting bool
	// Restart is who starts the container again after the host went down.
	Restart Restart

	// Incomplete reports that the runtime has not returned the details of the container yet:
	// Restart, StopTimeout and StopsBefore are unknown.
	Incomplete bool
	// StopTimeout is the stop timeout with which the container was created; nil if none was set, or
	// the runtime has none.
	StopTimeout *time.Duration
	// Unit names the systemd unit by whose stop the container is stopped; empty where it is of
	// none, or its runtime does not report it.
	Unit string
	// UnitGrace is the stop time-out of its unit, after which systemd kills the processes in any
	// case; nil if it is unlimited or unknown.
	UnitGrace *time.Duration
	// StopsBefore holds IDs of containers of the same runtime that this one needs as long
	// as it runs, so that they are sent the stop signal only once it has.
	StopsBefore []string
	// Joins are the containers of StopsBefore without which it cannot start, such as one whose
	// network it shares.
	Joins []string
	// StopsAfter names systemd units that are stopped before the container, because systemd
	// orders them after the unit that holds it. No runtime reports it: plan.Order.Apply adds it.
	StopsAfter []string

	Labels      map[string]string
	Annotations map[string]string
}

// Image is one image in a runtime's store.
type Image struct {
	Runtime string
	ID      string
	Tags    []string // references with a tag, such as "docker.io/library/nginx:1.27"
	Digests []string // references with a digest; empty for an image built on this host

	// SizeBytes is what the runtime reports. It may be the compressed size and
	// counts layers that other images share: an estimate, never a measurement.
	SizeBytes uint64
	// SharedBytes is how much of SizeBytes other images hold as well, where the
	// runtime reports it, which SharedKnown says.
	SharedBytes uint64
	SharedKnown bool

	// Pinned reports that the runtime wants the image kept.
	Pinned bool

	// CreatedAt is when the image was added to this store, last pulled or last named, if the
	// runtime reports it; otherwise zero. It is not the build date in the image.
	CreatedAt time.Time

	Labels map[string]string
	// LabelsUnknown reports that the runtime has labels of this image and has not
	// reported them yet. Nothing that they might forbid may be done.
	LabelsUnknown bool
}

// OwnBytes is how much of SizeBytes no other image holds, where the runtime reports it; all
// of it elsewhere.
func (i Image) OwnBytes() uint64 {
	if !i.SharedKnown {
		return i.SizeBytes
	}
	return i.SizeBytes - min(i.SharedBytes, i.SizeBytes)
}

// Names returns every reference that leads to the image: tags, then digests,
// or the ID of an image that has neither.
func (i Image) Names() []string {
	names := make([]string, 0, len(i.Tags)+len(i.Digests)+1)
	names = append(append(names, i.Tags...), i.Digests...)
	if len(names) == 0 {
		names = append(names, i.ID)
	}
	return names
}

// Layer is a part of images that takes space once, however many images share it: a snapshot,
// a layer of a storage driver, or a blob. Its space is free once nothing holds it.
type Layer struct {
	Runtime string
	Bytes   uint64
	Inodes  uint64   // 0 where the runtime does not report them
	Images  []string // IDs of the images that hold it
	// Users are what else holds it: IDs of containers, dead ones too, or other names.
	Users []string
}

// Owned is space on the filesystem of a runtime, and whose it is.
type Owned struct {
	Folder    string // that holds it; empty if it is in several, and Bytes has the size
	Bytes     uint64
	Container string // ID of the container that it belongs to, if it does
	By        string // whose it is where no list of pods has the container, such as "images in containerd's namespace default"
}

// ImageUser is something that uses an image and is no container of a Pod.
type ImageUser struct {
	Image string // ID or reference, as the runtime gives it
	By    string // who it is, for people, such as "container builder"
}

// Filesystem is where a runtime keeps images or containers, resolved to the
// mount that holds it.
type Filesystem struct {
	Runtime    string
	Path       string // folder that the runtime names, symbolic links resolved
	Mountpoint string
	Device     string // source of the mount, such as "/dev/sda2" or "tmpfs"

	// ID is the same for two mounts of one filesystem, such as a bind mount and
	// what it shows, and tells one from any other; empty if it is not known.
	ID string
}

// Info is what a runtime says of itself.
type Info struct {
	Name     string // such as "containerd"
	Version  string
	Endpoint string

	Ready   bool
	Message string // why not Ready, or a warning although it is

	NetworkReady   bool
	NetworkMessage string

	// Imageless reports that the runtime keeps no images: its containers are made from
	// folders that others fill.
	Imageless bool

	// SandboxImage is the image that the runtime starts every pod's sandbox
	// from, where it reports one. It is in use even while no container
	// names it.
	SandboxImage string
}

// Health is what a runtime last reported.
type Health struct {
	// Info is the answer. For a runtime that did not answer, Name and Endpoint are set,
	// Ready is false, Message is the error, and Version may be the one last reported.
	Info
	// Since is when Ready last changed, or when the runtime was first asked; zero if
	// that is not known.
	Since time.Time
}

// ContainerState is the life phase of a container.
type ContainerState int

// The states a container can be in, as far as hostler distinguishes them.
const (
	Unknown ContainerState = iota // the runtime lost track of it
	Created                       // created, never started
	Running                       // started, paused included
	Exited                        // ran and ended
)

var stateNames = [...]string{Unknown: "Unknown", Created: "Created", Running: "Running", Exited: "Exited"}

// String returns the state's name as `hostler ps` prints it.
func (s ContainerState) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return stateNames[Unknown]
	}
	return stateNames[s]
}

// MarshalText writes the state's name into JSON and YAML.
func (s ContainerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Restart is who starts a container again once the host that went down with it is back.
type Restart int

// Who does, as far as hostler distinguishes them.
const (
	RestartUnknown       Restart = iota // its runtime does not report it, or an orchestrator does
	RestartNever                        // nobody
	RestartByRuntime                    // its runtime, or not, whoever has stopped it before
	RestartUnlessStopped                // nobody, if somebody has stopped it, as hostler does: so hostler itself
	RestartByUnit                       // the systemd unit that it is of, or not, as that is enabled
	RestartNotAtBoot                    // nobody after a boot; its runtime, as long as the host runs
	RestartElsewhere                    // whoever made it, or not: its runtime runs it once
)

var restartNames = [...]string{"unknown", "never", "by-runtime", "unless-stopped", "by-unit", "not-at-boot", "elsewhere"}

// String returns the name that `hostler shutdown plan -o json` has for it.
func (r Restart) String() string {
	if r < 0 || int(r) >= len(restartNames) {
		return restartNames[RestartUnknown]
	}
	return restartNames[r]
}

// MarshalText writes the name into JSON and YAML.
func (r Restart) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote; names that it does not know become
// RestartUnknown.
func (r *Restart) UnmarshalText(text []byte) error {
	*r = Restart(max(slices.Index(restartNames[:], string(text)), 0))
	return nil
}

// EventType is what happened.
type EventType int

// What a Watcher reports. An adapter that cannot tell one from another sends
// Changed, upon which the receiver lists again. Changed with an Image means that
// this image got another name, another content or other labels.
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
	// Image is a name or ID as the runtime gives it: of the image in image events,
	// of what the container is made from in ContainerCreated.
	Image string
	Time  time.Time
}

// Labels and annotations with which the author of a container controls how hostler treats it. On
// CRI pods annotations count as well.
const (
	LabelCritical    = "hostler.io/critical"     // "true": stopped in the last phases
	LabelPriority    = "hostler.io/priority"     // a 32-bit integer, as a Kubernetes priority
	LabelKeep        = "hostler.io/keep"         // "true": never collected; as is anything but "false"
	LabelGracePeriod = "hostler.io/grace-period" // a duration, such as "90s"

	// LabelTerminationGracePeriod is what a kubelet records, in seconds.
	LabelTerminationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"
)
