// Package job has the orders that a test gives to pods of a machine, and their reports. It owns
// both formats, and does not judge the reports.
package job

import "time"

// Dir is the folder in a machine in which workloads record events: one file for each container.
// Later boots append to it.
const Dir = "/var/lib/hostler-work"

// Image is the only image in machines. Sandboxes use it and end on SIGTERM, as Kubernetes' own do.
// Containers use it and run the guest program. It is in a file, and is loaded with the first pods.
const (
	Image        = "machine.test/work:1"
	ImageArchive = "/usr/local/lib/hostler-machine/image.tar"
)

// Paths in a container that runs the guest program.
const (
	SeenDir     = "/work"  // Dir
	SeenProgram = "/guest" // the guest program
)

// BootFile in Dir has the boot ID for containers that run in several boots, if a test makes the
// machine write it there.
const BootFile = "boot_id"

// Pod is a pod to run in the machine's network, as kubelet runs one.
type Pod struct {
	Name        string
	Namespace   string            // "default" if empty
	Grace       time.Duration     // termination grace period in the annotations, if not zero
	Critical    bool              // has the label hostler.io/critical=true
	Labels      map[string]string // of the pod
	Annotations map[string]string // of the pod
	Containers  []Container       // if empty, one named "main" that ends on SIGTERM
}

// Container is a container of a pod. Its program records its start, its signals and its end.
type Container struct {
	Name        string
	IgnoresTERM bool          // only SIGKILL ends it
	EndsSlowly  time.Duration // time that it takes to end after SIGTERM
	EndsAfter   time.Duration // it ends by itself after this time, with code 0; zero: never
	Annotations map[string]string
}

// Order is the input of the guest's pod maker.
type Order struct {
	Pods         []Pod
	CgroupParent string
}

// Kind is the kind of an Event.
type Kind string

// The kinds of events.
const (
	Started Kind = "started"
	Signal  Kind = "signal"
	Ended   Kind = "ended"
	Alive   Kind = "alive" // the last event of a run: when it was last alive
)

// Event is a line in a workload's record.
type Event struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Boot      string `json:"boot"` // the machine's boot ID
	Life      string `json:"life"` // differs for each run of one container

	Kind   Kind   `json:"kind"`
	Signal string `json:"signal,omitempty"` // such as "SIGTERM"
	Code   int    `json:"code,omitempty"`   // exit code, of ended

	Time time.Time `json:"time"` // the last field, because stillAlive overwrites it
}
