package api

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/agent/selfdrain"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/history"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
	"hostler.io/hostler/status/reboots"
)

// Status is the output of `hostler status -o json`, with a field for each top-level key. The keys are
// stable; new ones can be added.
type Status struct {
	Version      string                 `json:"version"`
	Node         *corev1.Node           `json:"node"`  // null before the first check of the host
	Lease        *coordinationv1.Lease  `json:"lease"` // null while none has been written
	ControlPlane ControlPlane           `json:"controlPlane"`
	Runtimes     []Runtime              `json:"runtimes"`
	Owners       map[string]owner.Owner `json:"owners"` // by job: node, lease, shutdown, imageGC, containerGC
	Topology     status.Topology        `json:"topology"`
	Shutdown     shutdown.Status        `json:"shutdown"`
	ImageGC      ImageGC                `json:"imageGC"`
	ContainerGC  ContainerGC            `json:"containerGC"`
	Loops        []Loop                 `json:"loops"`
	State        State                  `json:"state"`
	// Addresses says why the host chose each of its addresses.
	Addresses []status.Choice `json:"addresses"`
	// Reboots says when and why this boot began, and how many earlier boots ended unexpectedly.
	Reboots reboots.Status `json:"reboots"`
	// NodeName is doctor's check of the Node's name; absent if the name is valid.
	NodeName *doctor.Check `json:"nodeName,omitempty"`
	// Configuration compares the effective configuration with the files.
	Configuration doctor.Configuration `json:"configuration"`
	// NextSteps has one step for each abnormal condition that hostler knows a fix for.
	NextSteps map[corev1.NodeConditionType]string `json:"nextSteps,omitempty"`
	// Shortage is the part of node.reserved that the host does not have; empty if it has all.
	Shortage string `json:"shortage,omitempty"`
	// AddressMissing is the part of node.address that the host does not have; empty if
	// NetworkUnavailable reports it.
	AddressMissing string `json:"addressMissing,omitempty"`
	// CustomConditions are the custom checks of the administrator.
	CustomConditions CustomConditions `json:"customConditions"`
	// Drift lists differences between the Node and the configuration that hostler cannot fix.
	Drift []Drift `json:"drift,omitempty"`
	// LeasePace is the Lease duration that the control plane requests; absent if it requests none.
	LeasePace *LeasePace `json:"leasePace,omitempty"`
	// Network says how the API is served over the network; absent if it is not.
	Network *Network `json:"network,omitempty"`
	// NotStarted names the containers that should run by their restart policy, and have not been
	// started since the boot.
	NotStarted []string `json:"notStarted,omitempty"`
	// NotRestarted names the pods that ran before the boot, that have not run since, and that
	// hostler does not start.
	NotRestarted []string `json:"notRestarted,omitempty"`
	// ScheduledShutdown is a shutdown that logind begins later, as after `shutdown +30`; absent if
	// there is none.
	ScheduledShutdown *ScheduledShutdown `json:"scheduledShutdown,omitempty"`
	// SelfDrains says when and why hostler drains the host automatically, as set by node.onTaint
	// and lease.onLost; absent without a cause.
	SelfDrains []selfdrain.Upcoming `json:"selfDrains,omitempty"`
	// Reboot is the requested, running or last reboot; absent unless reboot.enabled is true.
	Reboot *reboot.Report `json:"reboot,omitempty"`
	// Cordon is the last request of `hostler cordon` or `uncordon` on this host. It is absent if
	// there was none, or if the control plane has changed the Node since.
	Cordon *maintenance.Cordon `json:"cordon,omitempty"`
}

// ScheduledShutdown is a shutdown that logind begins later.
type ScheduledShutdown struct {
	Kind string    `json:"kind"` // "reboot", "poweroff", "halt" or "kexec"
	At   time.Time `json:"at"`
}

// Cause identifies the fault that an error reports. Errors with the same cause report the same
// fault in different texts.
type Cause string

// The causes of errors. The cause of a message about a condition is the type of the condition.
const (
	CauseNode     Cause = "node"     // the Node cannot be written
	CauseLease    Cause = "lease"    // the Lease cannot be renewed
	CauseIdentity Cause = "identity" // another machine has the Node's name
	// CauseUnreachable: the control plane does not answer, so that all requests fail.
	CauseUnreachable Cause = "unreachable"

	CauseCertificate Cause = "certificate" // there is no client certificate, or it was not renewed
	CauseApproval    Cause = "approval"    // the signing request waits for approval; the error has details
	CauseRefused     Cause = "refused"     // the certificate is rejected; the error has details

	CauseTLS      Cause = "tls" // the files of api.tls cannot be used
	CauseShutdown       = Cause(status.ShutdownProtected)
)

// ControlPlane says where Node, Lease and Events are written, and whether the writes succeed.
type ControlPlane struct {
	Type      string  `json:"type"`
	Endpoint  string  `json:"endpoint"`
	Connected bool    `json:"connected"`
	LastError string  `json:"lastError"`
	Causes    []Cause `json:"causes,omitempty"` // of lastError
	// Paused is why hostler writes nothing there although nothing failed: it waits for the Node, or
	// a user deregistered the host.
	Paused string `json:"resting,omitempty"`
	// Credentials says why a new client certificate is delayed, or that the server rejects the
	// current one; empty if neither is true.
	Credentials      string `json:"credentials,omitempty"`
	CredentialsCause Cause  `json:"credentialsCause,omitempty"`
	// Overdue says why the Lease was not renewed in time. Other programs then treat this host as
	// dead.
	Overdue      string `json:"overdue,omitempty"`
	OverdueCause Cause  `json:"overdueCause,omitempty"`
}

// Network says how the API or metrics are served over TLS.
type Network struct {
	Listen  string `json:"listen,omitempty"`  // the address of the API, which includes metrics
	Metrics string `json:"metrics,omitempty"` // the address that serves only metrics
	// Certificate is the file of the agent's certificate. Ends is when the one in use expires; null
	// if none is in use. Hostler does not renew it.
	Certificate string     `json:"certificate"`
	Ends        *time.Time `json:"ends"`
	// Message is why the agent does not use the files as they are, or why callers are rejected
	// because of them.
	Message string `json:"message,omitempty"`
}

// LeasePace is the effective Lease duration.
type LeasePace struct {
	Duration metav1.Duration `json:"duration"` // effective
	// By names the requester; empty if the configured duration applies. An invalid request has no
	// effect.
	By string `json:"by,omitempty"`
	// Faults are the invalid requests, and how to fix each.
	Faults []Drift `json:"faults,omitempty"`
}

// CustomConditions are the custom checks by condition type, and the faults of their files.
type CustomConditions struct {
	Directory string             `json:"directory"`
	Checks    []conditions.Check `json:"checks"`
	Faults    []conditions.Fault `json:"faults"`
}

// Config is the effective configuration, and how the files differ from it.
type Config struct {
	YAML string `json:"yaml"` // with defaults
	doctor.Configuration
}

// ReloadReport is the answer of `hostler reload -o json`.
type ReloadReport struct {
	Changed []string `json:"changed"` // keys
	// Warnings list new values that the host does not have. They are effective nevertheless.
	Warnings []string `json:"warnings,omitempty"`
}

// Drift is a difference on the control plane that a user must fix, and the fix.
type Drift struct {
	Message string `json:"message"`
	Fix     string `json:"hint"` // a command
}

// Runtime is the last known state of a container runtime.
type Runtime struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Endpoint string `json:"endpoint"`
	Ready    bool   `json:"ready"`
	Message  string `json:"message"` // why not ready, or a warning
}

// ImageGC is the state of image collection.
type ImageGC struct {
	Filesystems          []gc.FilesystemStatus `json:"filesystems"`
	HighThresholdPercent int                   `json:"highThresholdPercent"`
	LowThresholdPercent  int                   `json:"lowThresholdPercent"`
	// InodesHighThresholdPercent is the same threshold for inodes.
	InodesHighThresholdPercent int `json:"inodesHighThresholdPercent"`

	Images    int           `json:"images"`
	Unused    int           `json:"unused"`
	OnRequest *OnRequest    `json:"onRequest,omitempty"`
	LastRun   *runs.Summary `json:"lastRun"`            // null before the first run
	Message   string        `json:"message,omitempty"`  // which runtime did not answer and is not counted
	Runtimes  []string      `json:"runtimes,omitempty"` // the names of these runtimes
}

// OnRequest counts what is removed only on request.
type OnRequest = doctor.OnRequest

// ContainerGC is the state of container collection.
type ContainerGC struct {
	Containers int           `json:"containers"`
	Dead       int           `json:"dead"`
	OnRequest  *OnRequest    `json:"onRequest,omitempty"`
	LastRun    *runs.Summary `json:"lastRun"`           // null before the first run
	Message    string        `json:"message,omitempty"` // which runtime did not answer and is not counted
}

// Loop is the health of one of the agent's loops.
type Loop struct {
	loop.Health

	Runtimes []string `json:"runtimes,omitempty"` // runtimes whose failures lastError reports
	Cause    Cause    `json:"cause,omitempty"`    // of lastError, if another part of Status may report it
}

// State says whether the state files can be written.
type State struct {
	Path      string `json:"path"`
	Persisted bool   `json:"persisted"`
	Message   string `json:"message,omitempty"` // why not, or which file was set aside
}

// PodList is the answer of `hostler ps -o json`.
type PodList struct {
	Pods    []Pod  `json:"pods"`
	Message string `json:"message,omitempty"` // which runtime did not answer
}

// Pod is one pod and how a shutdown would treat it.
type Pod struct {
	Runtime      string             `json:"runtime"`
	ID           string             `json:"id"`
	UID          string             `json:"uid"`
	Namespace    string             `json:"namespace"`
	Name         string             `json:"name"`
	Ready        bool               `json:"ready"`
	Phase        string             `json:"phase,omitempty"` // of the shutdown; empty if the pod has nothing to stop
	Priority     int32              `json:"priority"`
	Grace        metav1.Duration    `json:"grace"`
	CreatedAt    time.Time          `json:"createdAt"`
	Labels       []string           `json:"labels,omitempty"` // KEY=VALUE: hostler's labels and annotations, also of the containers
	Containers   []Container        `json:"containers"`
	LastShutdown *journal.PodRecord `json:"lastShutdown,omitempty"` // how the last shutdown treated the pod with this name
}

// Container is one container of a pod.
type Container struct {
	Runtime    string    `json:"runtime"`
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Image      string    `json:"image"`
	State      string    `json:"state"`
	ExitCode   *int32    `json:"exitCode,omitempty"` // nil if a container has ended with an unknown exit code
	CreatedAt  time.Time `json:"createdAt"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
}

// ImageList is the answer of `hostler images -o json`.
type ImageList struct {
	Images  []Image `json:"images"`
	Message string  `json:"message,omitempty"` // which runtime did not answer
}

// Image is one image, with what keeps it or its position in the removal order.
type Image struct {
	gc.ImageDecision
	// Place is the image's position in the removal order of its filesystem: 1 is next. It is 0 if
	// something keeps the image.
	Place int `json:"place,omitempty"`
}

// CollectRequest requests a collection, or its plan.
type CollectRequest struct {
	Images        bool `json:"images"`     // if both are equal, images and containers are collected
	Containers    bool `json:"containers"` //
	AllUnused     bool `json:"allUnused"`
	TargetPercent int  `json:"targetPercent"` // 0 keeps the configured thresholds
}

// CollectPlan is the answer of `hostler gc plan -o json`.
type CollectPlan struct {
	gc.Decisions
	Message string `json:"message,omitempty"` // which runtime did not answer
}

// CollectHistory is the answer of `hostler gc history -o json`.
type CollectHistory struct {
	Runs []history.Run `json:"runs"` // newest first
}

// ShutdownPlan is the answer of `hostler shutdown plan -o json`.
type ShutdownPlan struct {
	plan.Plan
	State  shutdown.State `json:"state"` // of the guard, which executes the plan only if Armed
	Reason string         `json:"reason"`
	// Needed is the total time with the margin. Shortage says why less is granted, with the fix.
	Needed   metav1.Duration `json:"needed"`
	Shortage string          `json:"shortage,omitempty"`
	// StopFirst are the services that are stopped before any pod.
	StopFirst []string `json:"stopFirst,omitempty"`
	// RestartAfterBoot is auto, or never if containers are not started again after the boot.
	RestartAfterBoot string `json:"restartAfterBoot,omitempty"`
}

// CollectLine is one line of a streamed collection. The last line has the report or the error.
type CollectLine struct {
	Step   *Step        `json:"step,omitempty"`
	Report *runs.Report `json:"report,omitempty"`
	Error  *Error       `json:"error,omitempty"`
}

// Step is one object that a collection has processed.
type Step struct {
	// Waiting reports that the collection waits for another one.
	Waiting bool `json:"waiting,omitempty"`

	runs.Removal
	Action gc.Action `json:"action"`
	Error  string    `json:"error,omitempty"`
	Done   int       `json:"done"` // of Total
	Total  int       `json:"total"`
}

// Error is the answer to a failed request.
type Error = hint.Error
