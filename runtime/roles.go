package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The roles below are what an adapter can do. Consumers request the narrowest
// one that serves them, or declare a narrower interface of their own. Every
// method is safe for concurrent use, honours its context, and bounds itself by
// a deadline of its own where the context has none.

// Informer reports which runtime this is and whether it works.
type Informer interface {
	// Info asks the runtime. An error means that the runtime did not answer;
	// a runtime that answers "not ready" gives an Info and no error.
	Info(ctx context.Context) (Info, error)
}

// PodLister lists all pods with all their containers.
type PodLister interface {
	Pods(ctx context.Context) ([]Pod, error)
}

// ImageLister lists all images: none where the runtime keeps none, see Info.Imageless.
type ImageLister interface {
	Images(ctx context.Context) ([]Image, error)
}

// FilesystemLister names the filesystems that hold images: one at least, unless the
// runtime keeps none.
type FilesystemLister interface {
	ImageFilesystems(ctx context.Context) ([]Filesystem, error)
}

// Stopper ends pods and their containers.
type Stopper interface {
	// StopContainer asks the container to end by its own stop signal, kills it
	// after grace, and returns once it is dead. Stopping a dead or a missing
	// container succeeds. A grace of zero kills at once; where the runtime counts
	// in whole seconds a grace is rounded up. If ctx ends before the grace does,
	// the error is that of ctx, and the container may never be killed. Of one that is
	// stopped with a unit the runtime alone knows when its time began, and what the unit
	// did: ErrKilled says that it is dead, and did not end in its time.
	StopContainer(ctx context.Context, c Container, grace time.Duration) error
	// StopPod tears down what the pod has besides containers: sandbox, network.
	// It kills containers that still run; where pods have no sandbox, those that p
	// has. Stopping a stopped or a missing pod succeeds.
	StopPod(ctx context.Context, p Pod) error
}

// Starter is an ability that not every adapter has: to start a container again that has
// ended. Such adapters set Container.Restart.
type Starter interface {
	// StartContainer starts a container that does not run, as it was created. Starting
	// one that runs succeeds; starting a missing one is an error, as is a start that the
	// runtime refuses. ErrUnsupported where containers run once.
	StartContainer(ctx context.Context, c Container) error
}

// StartNeeder is an ability that not every Starter has: to return what a container needs of the
// host. Who starts containers after a boot requests it.
type StartNeeder interface {
	// StartNeeds returns what has to be there before the container is started.
	StartNeeds(ctx context.Context, c Container) (StartNeeds, error)
}

// StartNeeds is what a container needs of the host before it is started.
type StartNeeds struct {
	// Paths are the files and folders of the host that the container gets, and the devices of
	// its volumes.
	Paths []string
	// Units are systemd units that start containers like this one at boot: they go first.
	Units []string
}

// ContainerRemover removes dead containers.
type ContainerRemover interface {
	// RemoveContainer removes a container that does not run; ErrInUse if it
	// does. Removing a missing container succeeds.
	RemoveContainer(ctx context.Context, c Container) error
}

// PodRemover removes what a pod leaves besides containers.
type PodRemover interface {
	// RemovePod removes the sandbox of a pod that is not ready and has no
	// containers any more, with its network; ErrInUse if it is ready or has
	// containers, dead ones too. Removing a missing pod succeeds. ErrUnsupported
	// where pods have no sandbox, see Pod.Sandbox.
	RemovePod(ctx context.Context, p Pod) error
}

// ImageRemover removes images.
type ImageRemover interface {
	// RemoveImage removes the image with all its names. ErrInUse where the
	// runtime itself refuses, which not every runtime does. Removing a missing
	// image succeeds. ErrUnsupported where the runtime keeps no images.
	RemoveImage(ctx context.Context, img Image) error
}

// Watcher reports changes as they happen.
type Watcher interface {
	// Watch delivers events until ctx ends or the runtime's stream does, and
	// returns why it ended. ErrUnsupported means that this runtime has no event
	// stream and that the caller has to poll.
	Watch(ctx context.Context, events chan<- Event) error
}

// ImageUsers is an ability that not every adapter has: to report who uses images
// besides the containers that Pods lists. Who removes images requests it.
type ImageUsers interface {
	// OtherImageUsers returns them. ErrUnsupported means that this runtime has
	// none or does not know it.
	OtherImageUsers(ctx context.Context) ([]ImageUser, error)
}

// LayerLister is an ability that not every adapter has: to list what images consist of, so that
// a collection can estimate what removals free. It is called when images are about to be removed.
type LayerLister interface {
	// Layers lists every layer of the images with all that holds it. ErrUnsupported where
	// this runtime cannot.
	Layers(ctx context.Context) ([]Layer, error)
}

// SpaceOwner is an ability that not every adapter has: to report whose folders of the runtime
// are, and what it keeps besides images and pods that it lists. It is called where a filesystem
// is short although nothing more can be removed.
type SpaceOwner interface {
	OwnedSpace(ctx context.Context) ([]Owned, error)
}

// ImageDetailer is an ability that not every adapter has: to report of images what
// takes the runtime more than a list. Who judges images requests it.
type ImageDetailer interface {
	// DetailedImages is ImageLister's Images, with CreatedAt and Labels filled in
	// as far as the runtime knows them, and LabelsUnknown set where it does but
	// could not be asked in time.
	DetailedImages(ctx context.Context) ([]Image, error)
}

// StopSignaler is an ability that not every adapter has: to tell by which signal containers
// of an image are sent the stop signal. Who stops containers without their runtime requests it.
type StopSignaler interface {
	// StopSignal returns the stop signal in the configuration of an image, by its ID, such as
	// "SIGQUIT"; empty if it has none.
	StopSignal(ctx context.Context, imageID string) (string, error)
}

// LogReader is an ability that not every adapter has: to report what a container has written.
type LogReader interface {
	// Log returns the last lines of stdout and stderr, in their order: at most so many lines of at
	// most so many bytes each, and the end of longer lines. ErrUnsupported if the runtime keeps no
	// log of this container.
	Log(ctx context.Context, c Container, lines, maxBytes int) ([]byte, error)
}

// DetailedImages lists the images of a runtime with all details that it can list.
func DetailedImages(ctx context.Context, r ImageLister) ([]Image, error) {
	if d, able := r.(ImageDetailer); able {
		return d.DetailedImages(ctx)
	}
	return r.Images(ctx)
}

// Runtime is the whole of what an adapter offers.
type Runtime interface {
	// Name is the runtime's name as it stands in every Pod, Container and Image
	// that it lists.
	Name() string
	// Endpoint is the address that the adapter talks to.
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
	// Close gives back connections. It is called once, after all other calls;
	// a call that is in progress nevertheless ends with ErrUnavailable.
	Close() error
}

// Error classes that callers branch on. Adapters wrap them with operation and
// object.
var (
	// ErrUnavailable: the runtime does not answer at its endpoint, or not in time.
	ErrUnavailable = errors.New("runtime unavailable")
	// ErrLost, which is ErrUnavailable as well: the runtime stopped in the middle of the
	// call. It may have started, or even done, what was requested.
	ErrLost = fmt.Errorf("%w during the call", ErrUnavailable)
	// ErrNotRunning, which is ErrUnavailable as well: the runtime does not run, and nobody may start it
	// now, because that would cancel the shutdown that is in progress. To try again does not help.
	ErrNotRunning = fmt.Errorf("%w: it does not run, and starting it would cancel the shutdown in progress", ErrUnavailable)
	// ErrKilled: what was requested is done, and a container was killed for it.
	ErrKilled = errors.New("killed")
	// ErrInUse: the runtime refuses because something uses the object.
	ErrInUse = errors.New("in use")
	// ErrUnsupported: this runtime cannot do that at all.
	ErrUnsupported = errors.New("not supported by this runtime")
	// ErrTooLarge: the answer is larger than the adapter is willing to receive.
	ErrTooLarge = errors.New("answer too large")
	// ErrInvalidAnswer: the runtime answered what cannot be true, such as an image
	// without an ID. Nothing may be removed on the strength of such an answer.
	ErrInvalidAnswer = errors.New("invalid answer")
)

// NetworkReporter is an ability that not every adapter has: to return the network of a pod.
type NetworkReporter interface {
	// PodNetwork returns the network of a pod that runs.
	PodNetwork(ctx context.Context, p Pod) (PodNetwork, error)
}

// PodNetwork is the network of a pod.
type PodNetwork struct {
	Host bool     // it is that of the host
	IPs  []string // the pod's own, the primary one first; empty if Host
}
