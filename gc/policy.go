package gc

import (
	"errors"
	"fmt"
	"time"
)

// ThresholdOff as a high threshold never starts a collection, as with kubelet.
const ThresholdOff = 100

// Unlimited switches a limit on the number of dead containers off.
const Unlimited = -1

// DefaultAbandonedAge is how long the creator of an object may need to use it.
const DefaultAbandonedAge = time.Hour

// Policy is what an operator wants collected.
type Policy struct {
	Images     ImagePolicy
	Containers ContainerPolicy
}

// ImagePolicy says when images go. Percentages are of the filesystem that
// holds the images, rounded up, reserved blocks counted as used.
type ImagePolicy struct {
	HighPercent int // at or above this a collection begins; ThresholdOff: never
	LowPercent  int // a collection ends at or below this

	InodesHighPercent int // as HighPercent, of inodes
	InodesLowPercent  int // as LowPercent, of inodes

	// MinimumAge keeps an image for that time after it was first seen, pulled or last used, whichever
	// is latest.
	MinimumAge time.Duration
	// MaximumAge removes an image unused and not pulled for longer, however much
	// space there is; 0 switches it off.
	MaximumAge time.Duration

	Keep []Pattern // images with a name that one of these matches stay

	// IncludeLocal lets images without a registry digest go as well. They were
	// built or imported here and cannot be pulled again.
	IncludeLocal bool
}

// ContainerPolicy says when dead containers go.
type ContainerPolicy struct {
	// MinimumAge keeps a container for so long after its exit.
	MinimumAge time.Duration
	// MaximumAge removes a container that has been dead for longer, regardless of the limits; 0
	// disables it.
	MaximumAge time.Duration
	// AbandonedAge, if longer than MinimumAge, keeps objects that look abandoned but may not be:
	// containers that were never started or have an unknown state, containers of a dead sandbox, logs
	// without a pod.
	AbandonedAge time.Duration
	// MaxPerPodContainer is how many dead containers stay per pod and
	// container name, newest first; Unlimited switches it off.
	MaxPerPodContainer int
	// MaxContainers is how many dead containers stay in total; Unlimited
	// switches it off. It wins over MaxPerPodContainer.
	MaxContainers int
}

// patience is how long objects that look abandoned are kept.
func (p ContainerPolicy) patience() time.Duration { return max(p.MinimumAge, p.AbandonedAge) }

// DefaultPolicy is the policy of a host without configuration: kubelet's
// figures, and inodes besides.
func DefaultPolicy() Policy {
	return Policy{
		Images: ImagePolicy{
			HighPercent: 85, LowPercent: 80,
			InodesHighPercent: 90, InodesLowPercent: 85,
			MinimumAge: 2 * time.Minute,
		},
		Containers: ContainerPolicy{AbandonedAge: DefaultAbandonedAge, MaxPerPodContainer: 1, MaxContainers: Unlimited},
	}
}

// Validate says everything that is wrong with the policy.
func (p Policy) Validate() error {
	return errors.Join(p.Images.Validate(), p.Containers.Validate())
}

// Validate says everything that is wrong with the policy.
func (p ImagePolicy) Validate() error {
	return errors.Join(
		checkThresholds("image policy: space", p.HighPercent, p.LowPercent),
		checkThresholds("image policy: inodes", p.InodesHighPercent, p.InodesLowPercent),
		checkAges("image policy", p.MinimumAge, p.MaximumAge),
	)
}

// Validate says everything that is wrong with the policy.
func (p ContainerPolicy) Validate() error {
	return errors.Join(
		checkAges("container policy", p.MinimumAge, p.MaximumAge),
		checkAges("container policy: abandoned", p.AbandonedAge, 0),
		checkLimit("container policy: dead containers per pod and name", p.MaxPerPodContainer),
		checkLimit("container policy: dead containers in total", p.MaxContainers),
	)
}

func checkThresholds(what string, high, low int) error {
	for _, percent := range []int{high, low} {
		if percent < 0 || percent > 100 {
			return fmt.Errorf("%s: threshold %d%% is outside 0 to 100", what, percent)
		}
	}
	if low >= high {
		return fmt.Errorf("%s: low threshold %d%% is not below the high threshold %d%%; set it lower", what, low, high)
	}
	return nil
}

func checkAges(what string, minimum, maximum time.Duration) error {
	switch {
	case minimum < 0:
		return fmt.Errorf("%s: minimum age %s is negative", what, minimum)
	case maximum < 0:
		return fmt.Errorf("%s: maximum age %s is negative; set 0s to disable it", what, maximum)
	case maximum > 0 && maximum <= minimum:
		return fmt.Errorf("%s: maximum age %s is not above the minimum age %s; set 0s to disable it", what, maximum, minimum)
	}
	return nil
}

func checkLimit(what string, n int) error {
	if n < Unlimited {
		return fmt.Errorf("%s: limit %d is invalid; set -1 for no limit", what, n)
	}
	return nil
}

// Options is what one plan or run is requested, beyond the policy. The zero
// value is an ordinary collection of images and containers.
type Options struct {
	Images     bool // only images, unless Containers is set as well
	Containers bool // only containers, unless Images is set as well

	// AllUnused removes everything that nothing protects, however much space
	// there is. In pods that live, the newest dead container of each name stays.
	AllUnused bool
	// TargetPercent, if above 0, collects images until so much of their
	// filesystem is used, regardless of the high threshold.
	TargetPercent int

	// LeaveAlone names runtimes whose objects are not removed.
	LeaveAlone []string
	// RequestImages and RequestContainers name runtimes whose images, or dead containers, automatic
	// runs do not remove. They change no decision, only its explanation.
	RequestImages, RequestContainers []string
	// StartedSpace and StartedInodes name filesystems (Usage.Name) whose collection
	// has started for lack of the one or the other: of that they go down to the low
	// threshold although they are no longer above the high one.
	StartedSpace, StartedInodes []string
}

// Validate refuses options that contradict each other.
func (o Options) Validate() error {
	switch {
	case o.TargetPercent < 0 || o.TargetPercent > 100:
		return fmt.Errorf("target %d%% is outside 1 to 100", o.TargetPercent)
	case o.TargetPercent > 0 && o.AllUnused:
		return errors.New("all unused and a target percentage cannot be combined; choose one")
	}
	return nil
}

// WantImages reports whether images are requested.
func (o Options) WantImages() bool { return o.Images || !o.Containers }

// WantContainers reports whether containers are requested.
func (o Options) WantContainers() bool { return o.Containers || !o.Images }
