package journal

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Trigger is why pods are stopped.
type Trigger string

// The triggers of a drain.
const (
	// TriggerShutdown: logind announced a shutdown.
	TriggerShutdown Trigger = "shutdown"
	// TriggerServiceStop: the service stops because systemd is stopping, in a shutdown without
	// announcement.
	TriggerServiceStop Trigger = "service-stop"
	// TriggerManual: a user requested it; critical pods keep running.
	TriggerManual Trigger = "person"
	// TriggerManualAll: a user requested it, including critical pods.
	TriggerManualAll Trigger = "person-all"
	// TriggerTaint: the Node has a NoExecute taint; critical pods keep running.
	TriggerTaint Trigger = "taint"
	// TriggerLeaseLost: the Lease was not renewed; critical pods keep running.
	TriggerLeaseLost Trigger = "lease-lost"
	// TriggerReboot: hostler reboots the host. Critical pods are stopped last, right before the command
	// that reboots.
	TriggerReboot Trigger = "reboot"
	// TriggerUnknown: the boot ended without a drain, for example in a power failure.
	TriggerUnknown Trigger = "unknown"
)

// ByHost reports whether hostler decided to drain the host.
func (t Trigger) ByHost() bool {
	return t == TriggerTaint || t == TriggerLeaseLost || t == TriggerReboot
}

// LivesOn reports whether the host keeps running after the drain.
func (t Trigger) LivesOn() bool { return t == TriggerManual || t == TriggerManualAll || t.ByHost() }

// SkipsCritical reports whether the drain leaves critical pods running.
func (t Trigger) SkipsCritical() bool { return t == TriggerManual || t.ByHost() }

// Outcome is the result of a pod in a drain.
type Outcome string

// The outcomes. A pod that is being stopped has an empty one.
const (
	Stopped Outcome = "stopped" // all its containers ended in time
	Killed  Outcome = "killed"  // a container was killed at the end of its grace period
	Skipped Outcome = "skipped" // the drain did not stop it
	Left    Outcome = "left"    // it still ran when the drain ended, or that is unknown
)

// PodRecord is the result of one pod. It has a field for each key of its JSON.
type PodRecord struct {
	Runtime   string          `json:"runtime"`
	ID        string          `json:"id"`
	UID       string          `json:"uid,omitempty"` // the orchestrator's, if it differs from ID
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Phase     string          `json:"phase"` // of the shutdown
	Priority  int32           `json:"priority,omitempty"`
	Grace     metav1.Duration `json:"grace"`              // granted time: the longest of its containers
	Limits    []Limit         `json:"limits,omitempty"`   // of containers that got less than they request
	StartedAt time.Time       `json:"startedAt,omitzero"` // its first stop signal; zero if it got none
	// After names the containers and units that its first stop signal waited for.
	After      []string  `json:"after,omitempty"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	Outcome    Outcome   `json:"outcome,omitempty"`
	Error      string    `json:"error,omitempty"`
	Stuck      []string  `json:"stuck,omitempty"` // containers that did not stop
	// Once reports that its runtime runs containers only once, and cannot start them again.
	Once bool `json:"once,omitempty"`
	// Sandbox reports that the pod is a sandbox, which may outlive its runtime.
	Sandbox bool `json:"sandbox,omitempty"`
	// ExitCodes has the exit codes by container name, if runtimes reported them.
	ExitCodes map[string]int32 `json:"exitCodes,omitempty"`
	ContainerMaps
}

// Limit says why a container got less grace than it requests.
type Limit struct {
	Container string          `json:"container"` // its name
	Grace     metav1.Duration `json:"grace"`     // granted time
	Wanted    metav1.Duration `json:"wanted"`
	By        string          `json:"by"` // such as "phase regular"
}

// String describes the limit for users.
func (l Limit) String() string {
	return fmt.Sprintf("%s had %v of %v, limited by %s", l.Container, l.Grace.Duration.Round(100*time.Millisecond), l.Wanted.Duration, l.By)
}

// Record is the record of one shutdown or drain.
type Record struct {
	BootID  string  `json:"bootID"`
	Trigger Trigger `json:"trigger"`
	// Cause is why hostler drained the host, such as a taint; empty for other drains.
	Cause string `json:"cause,omitempty"`
	// Kind is the kind of shutdown, such as "reboot", if known.
	Kind       string    `json:"kind,omitempty"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"` // zero if it did not finish
	// CancelledAt is set if the shutdown was cancelled.
	CancelledAt time.Time `json:"cancelledAt,omitzero"`
	// UndoneAt is when the containers of an automatic drain became pending again.
	UndoneAt time.Time `json:"undoneAt,omitzero"`
	// EndUnknown reports that no process was running when the shutdown was cancelled. So it is
	// unknown which containers with a stop signal have ended.
	EndUnknown bool `json:"unheard,omitempty"`
	// Graceful reports that the drain finished and left no pod running. It does not exclude killed
	// pods, because they had their grace period.
	Graceful bool        `json:"graceful"`
	Pods     []PodRecord `json:"pods"`
	// Earlier are pods that earlier drains of the same maintenance period stopped, and that this
	// drain did not stop again. Some of them may have been started since.
	Earlier []PodRecord `json:"earlier,omitempty"`
	// AsOf is the time of the last recorded change of pods in a boot that ended without a drain.
	// Changes right before the end may be missing.
	AsOf time.Time `json:"asOf,omitzero"`
	// Shortened reports that the phases had less time than configured; nil if they had all.
	Shortened *Shortened `json:"shortened,omitempty"`
	// StoppedFirst are the services that were stopped before any pod.
	StoppedFirst []Service `json:"stoppedFirst,omitempty"`
	// Error says why the drain was not graceful, if no pod does.
	Error string `json:"error,omitempty"`
	// Watching reports that a manual drain has stopped its pods, and checks whether anything starts
	// one again.
	Watching bool `json:"-"`
}

// Service is a service that was stopped before any pod, because it would have started pods again.
// With InTurn, it is a unit that was stopped because it runs a container.
type Service struct {
	Name    string          `json:"name"`
	AskedAt time.Time       `json:"askedAt,omitzero"` // zero if its stop was not requested
	Took    metav1.Duration `json:"took"`             // until it ended, or until the wait for it ended
	Error   string          `json:"error,omitempty"`  // why it may still run
	// StartedAt is when it was started again, because the host did not shut down.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// InTurn reports that it is a unit that was stopped because it runs a container. Such services
	// are not part of a Record.
	InTurn bool `json:"inTurn,omitempty"`
}

// Lead returns how long the drain has waited for services before the phases began.
func (r Record) Lead(now time.Time) (took time.Duration) {
	for _, s := range r.StoppedFirst {
		if s.Took.Duration == 0 && s.Error == "" && !s.AskedAt.Before(r.StartedAt) {
			return now.Sub(r.StartedAt)
		}
		took = max(took, s.Took.Duration)
	}
	return took
}

// First describes the stopped services for users; empty if there are none.
func (r Record) First() string {
	var stopped, others []string
	for _, s := range r.StoppedFirst {
		if s.Error == "" {
			stopped = append(stopped, s.Name)
		} else {
			others = append(others, fmt.Sprintf("%s did not stop first: %s", s.Name, s.Error))
		}
	}
	if len(stopped) > 0 {
		others = append([]string{strings.Join(stopped, ", ") + " stopped first"}, others...)
	}
	return strings.Join(others, "; ")
}

// Shortened says how much the phases were shortened to fit into the granted delay.
type Shortened struct {
	Granted metav1.Duration `json:"granted"` // delay that the init system grants for the whole shutdown
	Wanted  metav1.Duration `json:"wanted"`  // sum of the configured phases
	Had     metav1.Duration `json:"had"`     // sum of the shortened phases
}

// String describes it for users; empty for nil.
func (s *Shortened) String() string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("phases were shortened to %v of %v because logind granted %v", s.Had.Duration, s.Wanted.Duration, s.Granted.Duration)
}

// Clone copies the record with its pods and services, so that they can be modified.
func (r *Record) Clone() *Record {
	if r == nil {
		return nil
	}
	c := *r
	c.Pods = append([]PodRecord{}, r.Pods...)
	c.StoppedFirst = slices.Clone(r.StoppedFirst)
	return &c
}
