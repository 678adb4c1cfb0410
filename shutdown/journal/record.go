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
	// TriggerShutdown: the login manager announced a shutdown.
	TriggerShutdown Trigger = "shutdown"
	// TriggerServiceStop: the service stops because systemd does,
	// in a shutdown that nobody announced.
	TriggerServiceStop Trigger = "service-stop"
	// TriggerManual: a person asked, and critical pods stay.
	TriggerManual Trigger = "person"
	// TriggerManualAll: a person requested critical pods, too.
	TriggerManualAll Trigger = "person-all"
	// TriggerTaint: the Node has a NoExecute taint, and critical pods stay.
	TriggerTaint Trigger = "taint"
	// TriggerLeaseLost: the Lease was not renewed, and critical pods stay.
	TriggerLeaseLost Trigger = "lease-lost"
	// TriggerReboot: hostler reboots the host, and critical pods stay until it does.
	TriggerReboot Trigger = "reboot"
	// TriggerUnknown: the boot ended without a drain, as when power is lost.
	TriggerUnknown Trigger = "unknown"
)

// ByHost reports whether hostler decided to drain the host.
func (t Trigger) ByHost() bool {
	return t == TriggerTaint || t == TriggerLeaseLost || t == TriggerReboot
}

// LivesOn reports whether the host does not go down with the drain.
func (t Trigger) LivesOn() bool { return t == TriggerManual || t == TriggerManualAll || t.ByHost() }

// SparesCritical reports whether the drain skips critical pods.
func (t Trigger) SparesCritical() bool { return t == TriggerManual || t.ByHost() }

// Outcome is what a drain did to a pod.
type Outcome string

// The outcomes. A pod that is being stopped has none.
const (
	Stopped Outcome = "stopped" // all its containers ended in time
	Killed  Outcome = "killed"  // a container was killed at the end of its grace
	Skipped Outcome = "skipped" // it was not touched
	Left    Outcome = "left"    // it ran on when the drain ended, or nobody knows
)

// PodRecord is the result of one pod. It has a field for each key of its JSON.
type PodRecord struct {
	Runtime    string          `json:"runtime"`
	ID         string          `json:"id"`
	UID        string          `json:"uid,omitempty"` // the orchestrator's, where it differs from ID
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	Phase      string          `json:"phase"` // of the shutdown
	Priority   int32           `json:"priority,omitempty"`
	Grace      metav1.Duration `json:"grace"`            // the time that it was given: the longest of its containers
	Limits     []Limit         `json:"limits,omitempty"` // of containers that were given less than they request
	StartedAt  time.Time       `json:"startedAt,omitzero"`
	FinishedAt time.Time       `json:"finishedAt,omitzero"`
	Outcome    Outcome         `json:"outcome,omitempty"`
	Error      string          `json:"error,omitempty"`
	Stuck      []string        `json:"stuck,omitempty"` // containers that did not stop
	// Once reports that its runtime runs containers once, and cannot start them again.
	Once bool `json:"once,omitempty"`
	// Sandbox reports that the pod is a sandbox, which may outlive its runtime.
	Sandbox bool `json:"sandbox,omitempty"`
	// ExitCodes has the exit codes of containers by name, as far as runtimes reported them.
	ExitCodes map[string]int32 `json:"exitCodes,omitempty"`
	ContainerMaps
}

// Limit is why a container was given less grace than it requests.
type Limit struct {
	Container string          `json:"container"` // its name
	Grace     metav1.Duration `json:"grace"`     // the time that it was given
	Wanted    metav1.Duration `json:"wanted"`
	By        string          `json:"by"` // such as "phase regular"
}

// String says it to a person.
func (l Limit) String() string {
	return fmt.Sprintf("%s had %v of %v, limited by %s", l.Container, l.Grace.Duration.Round(100*time.Millisecond), l.Wanted.Duration, l.By)
}

// Record is how one shutdown went.
type Record struct {
	BootID  string  `json:"bootID"`
	Trigger Trigger `json:"trigger"`
	// Cause is why hostler decided to drain the host, such as a taint; empty for other drains.
	Cause string `json:"cause,omitempty"`
	// Kind is the kind of shutdown, such as "reboot", where it is known.
	Kind       string    `json:"kind,omitempty"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"` // zero if it never was
	// CancelledAt is set if the shutdown was cancelled.
	CancelledAt time.Time `json:"cancelledAt,omitzero"`
	// EndUnknown reports that no process noticed the cancellation, so that it is unknown which of the
	// containers with a stop signal have ended.
	EndUnknown bool `json:"unheard,omitempty"`
	// Graceful reports that the drain finished and left no pod running. A killed pod had its grace
	// period.
	Graceful bool        `json:"graceful"`
	Pods     []PodRecord `json:"pods"`
	// Earlier are pods that earlier drains of the same maintenance stopped, and that this drain did not
	// stop again. Some of them may have been started since.
	Earlier []PodRecord `json:"earlier,omitempty"`
	// AsOf is the time of the last recorded change of pods in a boot that ended without a drain.
	// Changes right before the end may be missing.
	AsOf time.Time `json:"asOf,omitzero"`
	// Shortened reports that the phases had less time than they were to have; nil
	// where they had it all.
	Shortened *Shortened `json:"shortened,omitempty"`
	// StoppedFirst are the services that were stopped before any pod.
	StoppedFirst []Service `json:"stoppedFirst,omitempty"`
	// Error says why it was not graceful where no pod reports it.
	Error string `json:"error,omitempty"`
	// Watching reports that a manual drain has stopped its pods, and waits whether something starts one
	// again.
	Watching bool `json:"-"`
}

// Service is one that was stopped before any pod, because it would have started them again,
// or in the turn of a container of it.
type Service struct {
	Name    string          `json:"name"`
	AskedAt time.Time       `json:"askedAt,omitzero"` // zero if nobody got to ask it
	Took    metav1.Duration `json:"took"`             // until it had ended, or was waited for no longer
	Error   string          `json:"error,omitempty"`  // why it may still run
	// StartedAt is when it was started again, because the host did not go down.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// InTurn reports that it is no service that is stopped first, but a unit that was stopped for
	// a container of it. No record has such ones.
	InTurn bool `json:"inTurn,omitempty"`
}

// Lead is how long services were waited for now before the phases began, or are still.
func (r Record) Lead(now time.Time) (took time.Duration) {
	for _, s := range r.StoppedFirst {
		if s.Took.Duration == 0 && s.Error == "" && !s.AskedAt.Before(r.StartedAt) {
			return now.Sub(r.StartedAt)
		}
		took = max(took, s.Took.Duration)
	}
	return took
}

// First says it to a person; empty where no service was stopped.
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

// Shortened is how much the phases were shortened to fit into the granted delay.
type Shortened struct {
	Granted metav1.Duration `json:"granted"` // by the init system, for all of the shutdown
	Wanted  metav1.Duration `json:"wanted"`  // by the phases together
	Had     metav1.Duration `json:"had"`     // of that
}

// String says it to a person; nil says nothing.
func (s *Shortened) String() string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("phases were shortened to %v of %v because logind granted %v", s.Had.Duration, s.Wanted.Duration, s.Granted.Duration)
}

// Clone copies the record so that its pods and services can be changed.
func (r *Record) Clone() *Record {
	if r == nil {
		return nil
	}
	c := *r
	c.Pods = append([]PodRecord{}, r.Pods...)
	c.StoppedFirst = slices.Clone(r.StoppedFirst)
	return &c
}
