package gc

import (
	"errors"
	"fmt"
	"time"
)

// ThresholdOff is a high threshold that never starts a collection, as in kubelet.
const ThresholdOff = 100

// Unlimited disables a limit on the number of dead containers.
const Unlimited = -1

// DefaultAbandonedAge is how long a client may take to use an object that it created.
const DefaultAbandonedAge = time.Hour

// Policy is what the collectors remove, and when.
type Policy struct {
	Images     ImagePolicy
	Containers ContainerPolicy
}

// ImagePolicy says when images are removed. Percentages are of the filesystem that holds the
// images, rounded up. Reserved blocks count as used.
type ImagePolicy struct {
	HighPercent int // a collection begins at or above this; ThresholdOff: never
	LowPercent  int // a collection ends at or below this

	InodesHighPercent int // HighPercent for inodes
	InodesLowPercent  int // LowPercent for inodes

	// MinimumAge keeps an image for this time after it was first seen, pulled or last used,
	// whichever is latest.
	MinimumAge time.Duration
	// MaximumAge removes an image that was not used or pulled for longer, even if space is free; 0
	// disables it.
	MaximumAge time.Duration

	Keep []Pattern // images with a matching name are kept

	// IncludeLocal allows the removal of images without a registry digest. They were built or
	// imported on this host, so they cannot be pulled again.
	IncludeLocal bool
}

// ContainerPolicy says when dead containers are removed.
type ContainerPolicy struct {
	// MinimumAge keeps a container for this time after its exit.
	MinimumAge time.Duration
	// MaximumAge removes a container that has been dead for longer, whatever the limits are; 0
	// disables it.
	MaximumAge time.Duration
	// AbandonedAge, if longer than MinimumAge, keeps objects that seem abandoned but may not be.
	// These are containers that were never started or have an unknown state, containers of a dead
	// sandbox, and logs without a pod.
	AbandonedAge time.Duration
	// MaxPerPodContainer is how many dead containers are kept per pod and container name, newest
	// first; Unlimited disables it.
	MaxPerPodContainer int
	// MaxContainers is how many dead containers are kept in total; Unlimited disables it. It has
	// precedence over MaxPerPodContainer.
	MaxContainers int
}

// patience is how long objects that look abandoned are kept.
func (p ContainerPolicy) patience() time.Duration { return max(p.MinimumAge, p.AbandonedAge) }

// DefaultPolicy is the policy without configuration: the defaults of kubelet, and also for inodes.
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

// Validate returns all faults of the policy.
func (p Policy) Validate() error {
	return errors.Join(p.Images.Validate(), p.Containers.Validate())
}

// Validate returns all faults of the policy.
func (p ImagePolicy) Validate() error {
	return errors.Join(
		checkThresholds("image policy: space", p.HighPercent, p.LowPercent),
		checkThresholds("image policy: inodes", p.InodesHighPercent, p.InodesLowPercent),
		checkAges("image policy", p.MinimumAge, p.MaximumAge),
	)
}

// Validate returns all faults of the policy.
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

// Options are the options of one plan or run, beyond the policy. The zero value is an ordinary
// collection of images and containers.
type Options struct {
	Images     bool // only images, unless Containers is set, too
	Containers bool // only containers, unless Images is set, too

	// AllUnused removes everything that nothing protects, even if space is free. In running pods,
	// the newest dead container of each name is kept.
	AllUnused bool
	// TargetPercent, if above 0, removes images until this percentage of their filesystem is used.
	// The high threshold has no effect then.
	TargetPercent int

	// LeaveAlone names runtimes whose objects are not removed.
	LeaveAlone []string
	// RequestImages and RequestContainers name runtimes whose images or dead containers automatic
	// runs do not remove. They do not change decisions, only their explanation.
	RequestImages, RequestContainers []string
	// StartedSpace and StartedInodes name filesystems (Usage.Name) for which the collection has
	// started, because bytes or inodes were lacking. It continues down to the low threshold, even
	// below the high one.
	StartedSpace, StartedInodes []string
}

// Validate rejects options that contradict each other.
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
