// Package job has the tasks that a test gives to pods of a machine, and their reports. It owns both
// forms, and does not judge.
package job

import "time"

// Dir is where in a machine the workloads write down what happens to them: a
// file for each container, which later boots add to.
const Dir = "/var/lib/hostler-work"

// Image is the one image in machines: of sandboxes, which end on SIGTERM as
// Kubernetes' own do, and of containers, which run the guest program. A machine
// has it in a file, and loads it with its first pods.
const (
	Image        = "machine.test/work:1"
	ImageArchive = "/usr/local/lib/hostler-machine/image.tar"
)

// What a container that runs the guest program sees of its machine, by where.
const (
	SeenDir     = "/work"  // Dir
	SeenProgram = "/guest" // the guest program
)

// BootFile in Dir is where a container that lives in several boots reads in which it is,
// if a test has the machine write its boot ID there.
const BootFile = "boot_id"

// Pod is a pod to run, as kubelet would run it, in the machine's network.
type Pod struct {
	Name        string
	Namespace   string            // "default" if empty
	Grace       time.Duration     // annotated as the termination grace period if not zero
	Critical    bool              // labelled hostler.io/critical=true
	Labels      map[string]string // of the pod
	Annotations map[string]string // of the pod
	Containers  []Container       // one named "main" that ends on SIGTERM if empty
}

// Container is one container of a pod: a program that writes down when it
// starts, which signals it gets and how it ends.
type Container struct {
	Name        string
	IgnoresTERM bool          // only SIGKILL ends it
	EndsSlowly  time.Duration // how long it takes to end after SIGTERM
	EndsAfter   time.Duration // it ends by itself, with code 0; zero: never
	Annotations map[string]string
}

// Order is what the pod maker reads.
type Order struct {
	Pods         []Pod
	CgroupParent string
}

// Kind is what an Event tells of.
type Kind string

// The kinds of events.
const (
	Started Kind = "started"
	Signal  Kind = "signal"
	Ended   Kind = "ended"
	Alive   Kind = "alive" // the last of a life: when it was last seen to run
)

// Event is one line of what a workload writes down.
type Event struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Boot      string `json:"boot"` // the machine's boot ID
	Life      string `json:"life"` // tells the lives of one container apart

	Kind   Kind   `json:"kind"`
	Signal string `json:"signal,omitempty"` // such as "SIGTERM"
	Code   int    `json:"code,omitempty"`   // exit code, of ended

	Time time.Time `json:"time"` // the last field, which a workload writes over and over
}
