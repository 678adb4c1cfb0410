package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The roles below are the abilities of an adapter. A consumer requires the narrowest role that it
// needs, or declares its own narrower interface. Every method is safe for concurrent use and honors
// its context. If the context has no deadline, the method sets its own.

// Informer reports the identity and health of a runtime.
type Informer interface {
	// Info queries the runtime. An error means that the runtime did not answer. A runtime that
	// answers "not ready" returns an Info and no error.
	Info(ctx context.Context) (Info, error)
}

// PodLister lists all pods with all their containers.
type PodLister interface {
	Pods(ctx context.Context) ([]Pod, error)
}

// ImageLister lists all images. A runtime without images returns none, see Info.Imageless.
type ImageLister interface {
	Images(ctx context.Context) ([]Image, error)
}

// FilesystemLister returns the filesystems of images: at least one, unless the runtime has no
// images.
type FilesystemLister interface {
	ImageFilesystems(ctx context.Context) ([]Filesystem, error)
}

// Stopper stops pods and their containers.
type Stopper interface {
	// StopContainer sends the container its own stop signal, kills it after grace, and returns once
	// it is dead. Stopping a dead or a missing container succeeds. A grace of zero kills at once.
	// If the runtime uses whole seconds, a grace is rounded up. If ctx ends before the grace, the
	// error is that of ctx, and the container may never be killed.
	//
	// If a container is stopped with its unit, only the runtime knows when its grace began, and
	// what the unit did. Then ErrKilled means that it is dead, but did not end within its grace.
	StopContainer(ctx context.Context, c Container, grace time.Duration) error
	// StopPod removes the running parts of a pod other than containers: sandbox and network. It
	// kills containers that still run. If pods have no sandbox, it kills the containers in p.
	// Stopping a stopped or a missing pod succeeds.
	StopPod(ctx context.Context, p Pod) error
}

// Starter is an optional role: it starts a container again that has ended. Adapters with this role
// set Container.Restart.
type Starter interface {
	// StartContainer starts a container that does not run, as it was created. Starting a running
	// container succeeds. Starting a missing one fails. ErrUnsupported means that containers of
	// this runtime run only once.
	StartContainer(ctx context.Context, c Container) error
}

// StartNeeder is an optional role of Starters: it returns what a container needs from the host. It
// is for callers that start containers after a boot.
type StartNeeder interface {
	// StartNeeds returns what must exist before the container is started.
	StartNeeds(ctx context.Context, c Container) (StartNeeds, error)
}

// StartNeeds is what must exist on the host before a container is started.
type StartNeeds struct {
	// Paths are files and folders of the host that are bound into the container, and the devices of
	// its volumes.
	Paths []string
	// Units are systemd units that start containers like this one at boot. They have precedence.
	Units []string
}

// ContainerRemover removes dead containers.
type ContainerRemover interface {
	// RemoveContainer removes a container that does not run. If it runs, the error is ErrInUse.
	// Removing a missing container succeeds.
	RemoveContainer(ctx context.Context, c Container) error
}

// PodRemover removes what remains of a pod without containers.
type PodRemover interface {
	// RemovePod removes the sandbox and network of a pod that is not ready and has no containers.
	// If it is ready or has containers, even dead ones, the error is ErrInUse. Removing a missing
	// pod succeeds. ErrUnsupported means that pods have no sandbox, see Pod.Sandbox.
	RemovePod(ctx context.Context, p Pod) error
}

// ImageRemover removes images.
type ImageRemover interface {
	// RemoveImage removes the image with all its names. If the runtime refuses, the error is
	// ErrInUse, but not every runtime refuses. Removing a missing image succeeds. ErrUnsupported
	// means that the runtime has no images.
	RemoveImage(ctx context.Context, img Image) error
}

// Watcher reports changes as they happen.
type Watcher interface {
	// Watch delivers events until ctx or the runtime's stream ends, and returns the cause.
	// ErrUnsupported means that the runtime has no event stream, so that the caller must poll.
	Watch(ctx context.Context, events chan<- Event) error
}

// ImageUsers is an optional role: it reports users of images other than the containers that Pods
// lists. It is for callers that remove images.
type ImageUsers interface {
	// OtherImageUsers returns these users. ErrUnsupported means that the runtime has none or cannot
	// report them.
	OtherImageUsers(ctx context.Context) ([]ImageUser, error)
}

// LayerLister is an optional role: it lists the layers of images, so that a collection can estimate
// how much space removals free. It is called before images are removed.
type LayerLister interface {
	// Layers lists every layer of the images with all its users. ErrUnsupported means that the
	// runtime cannot do that.
	Layers(ctx context.Context) ([]Layer, error)
}

// SpaceOwner is an optional role: it reports the owners of the runtime's folders, and space that
// belongs to no listed image or pod. It is called if a filesystem is short of space and nothing
// more can be removed.
type SpaceOwner interface {
	OwnedSpace(ctx context.Context) ([]Owned, error)
}

// ImageDetailer is an optional role: it lists images with details that cost the runtime more than a
// list. It is for callers that decide about images.
type ImageDetailer interface {
	// DetailedImages is ImageLister's Images with CreatedAt and Labels, as far as the runtime knows
	// them. LabelsUnknown is set if the runtime has labels that it could not return in time.
	DetailedImages(ctx context.Context) ([]Image, error)
}

// StopSignaler is an optional role: it returns the stop signal of an image. It is for callers that
// stop containers without their runtime.
type StopSignaler interface {
	// StopSignal returns the stop signal in the configuration of an image, by the image's ID, such
	// as "SIGQUIT", or "".
	StopSignal(ctx context.Context, imageID string) (string, error)
}

// LogReader is an optional role: it returns a container's output.
type LogReader interface {
	// Log returns the last lines of stdout and stderr, in their order: at most that many lines, and
	// the last maxBytes of each line. ErrUnsupported means that the runtime has no log of this
	// container.
	Log(ctx context.Context, c Container, lines, maxBytes int) ([]byte, error)
}

// DetailedImages lists a runtime's images with all available details.
func DetailedImages(ctx context.Context, r ImageLister) ([]Image, error) {
	if d, able := r.(ImageDetailer); able {
		return d.DetailedImages(ctx)
	}
	return r.Images(ctx)
}

// Runtime has all roles that every adapter has.
type Runtime interface {
	// Name returns the name that every listed Pod, Container and Image carries.
	Name() string
	// Endpoint returns the address of the runtime.
	Endpoint() string
	Informer
	PodLister
	ImageLister
	FilesystemLister
	Stopper
	ContainerRemover
	PodRemover
	ImageRemover
	Watcher
	// Close closes connections. It is called once, after all other calls. A call that is still in
	// progress fails with ErrUnavailable.
	Close() error
}

// Error classes on which callers branch. Adapters wrap them with operation and object.
var (
	// ErrUnavailable: the runtime does not answer at its endpoint, or not in time.
	ErrUnavailable = errors.New("runtime unavailable")
	// ErrLost, which wraps ErrUnavailable: the runtime stopped during the call. It may have begun
	// or even finished the operation.
	ErrLost = fmt.Errorf("%w during the call", ErrUnavailable)
	// ErrNotRunning, which wraps ErrUnavailable: the runtime does not run, and must not be started
	// now, because that would cancel the shutdown in progress. Another attempt does not help.
	ErrNotRunning = fmt.Errorf("%w: it does not run, and starting it would cancel the shutdown in progress", ErrUnavailable)
	// ErrKilled: the operation succeeded, but a container was killed.
	ErrKilled = errors.New("killed")
	// ErrInUse: the runtime refuses because something uses the object.
	ErrInUse = errors.New("in use")
	// ErrUnsupported: this runtime does not have the operation.
	ErrUnsupported = errors.New("not supported by this runtime")
	// ErrTooLarge: the response is larger than the adapter accepts.
	ErrTooLarge = errors.New("answer too large")
	// ErrInvalidAnswer: the runtime returned an impossible value, such as an image without an ID.
	// Nothing may be removed because of such a response.
	ErrInvalidAnswer = errors.New("invalid answer")
)

// NetworkReporter is an optional role: it returns the network of a pod.
type NetworkReporter interface {
	// PodNetwork returns the network of a running pod.
	PodNetwork(ctx context.Context, p Pod) (PodNetwork, error)
}

// PodNetwork is the network of a pod.
type PodNetwork struct {
	Host bool     // the pod uses the host's network
	IPs  []string // the pod's own, the primary one first; empty if Host
}
