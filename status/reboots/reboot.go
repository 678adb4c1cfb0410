package reboots

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/shutdown/journal"
)

// Verdict is whether somebody wanted a reboot.
type Verdict string

// The verdicts.
const (
	Expected   Verdict = "expected"   // the init system took the host down
	Unexpected Verdict = "unexpected" // nothing did: power, the kernel, or by force
	Unknown    Verdict = "unknown"    // no agent saw the end of the boot before
)

// Reboot is how a boot came to follow the one before.
type Reboot struct {
	BootID  string  `json:"bootID"` // the kernel's, of the boot that began
	Verdict Verdict `json:"verdict"`
	// Trigger is how the agent heard of the end of the boot before: announced by
	// logind, or from systemd; empty where it did not.
	Trigger journal.Trigger `json:"trigger,omitempty"`
	Kind    string          `json:"kind,omitempty"` // such as "reboot", where that is known
	// SameKernel reports that the kernel ran on: a soft-reboot, or a host that is itself a
	// container.
	SameKernel bool `json:"sameKernel,omitempty"`
	// Graceful is whether all pods had stopped, or had their grace; null where
	// hostler had no part in that.
	Graceful *bool            `json:"graceful"`
	Killed   int              `json:"killed,omitempty"` // pods that were killed at the end of their grace period
	Drain    *metav1.Duration `json:"drain,omitempty"`  // how long stopping them took; absent if it came to no end
	// Gap is from the end of the drain to the start of this boot by the wall clock,
	// boots without an agent included; absent where that clock cannot be believed.
	Gap   *metav1.Duration `json:"gap,omitempty"`
	Error string           `json:"error,omitempty"` // why it was not graceful, or not expected
}

// judge decides how this boot followed the boot before, whose agent ended as recorded.
func judge(before string, ended ending, o Options) Reboot {
	r := Reboot{BootID: kernel(o.Boot)}
	last := o.Journal.LastBoot()
	switch {
	case last != nil && before != "" && !journal.SameBoot(last.BootID, before):
		last = nil // of a boot before that one, in which nobody guarded the shutdown
	case before == "" && last != nil:
		before = last.BootID
	}
	switch {
	case last != nil && last.Trigger == journal.TriggerUnknown:
		r.Verdict, r.Graceful, r.Error = Unexpected, new(false), last.Error
	case last != nil:
		r.Verdict, r.Trigger, r.Kind, r.Graceful, r.Error = Expected, last.Trigger, last.Kind, new(last.Graceful), last.Error
		r.Killed = last.Killed()
	case ended == goingDown:
		r.Verdict, r.Trigger = Expected, journal.TriggerServiceStop
	case before != "" && ended == runs:
		r.Verdict, r.Error = Unexpected, "the host went down while the agent was running"
	default:
		r.Verdict = Unknown
	}
	began := o.Began
	if before != "" && kernel(before) == kernel(o.Boot) { // only systemd is another one
		r.SameKernel = true
		began, _ = managerStart(o.Boot)
	}
	if last != nil && !last.FinishedAt.IsZero() {
		r.Drain = &metav1.Duration{Duration: last.FinishedAt.Sub(last.StartedAt).Round(time.Millisecond)}
		if gap := began.Sub(last.FinishedAt); !began.IsZero() && gap > 0 {
			r.Gap = &metav1.Duration{Duration: gap.Round(time.Second)}
		}
	}
	return r
}

// By returns what took the host down, as far as that is certain. logind writes the name of the user
// only to its log.
func (r Reboot) By() string {
	by := ""
	switch {
	case r.Verdict == Unknown:
		return "no agent saw how the previous boot ended"
	case r.Verdict == Unexpected && r.SameKernel:
		return "forced, without a reboot of the kernel"
	case r.Verdict == Unexpected:
		return "such as power loss, kernel panic or forced reboot"
	case r.Trigger == journal.TriggerShutdown:
		by = "announced by logind"
	case r.Trigger == journal.TriggerServiceStop:
		by = "by systemd, without logind notification"
		if r.Graceful == nil { // who guarded that shutdown heard of it first
			by = "by systemd"
		}
	}
	return strings.Trim(r.Kind+" "+by, " ")
}

// String returns it as text for people.
func (r Reboot) String() string {
	if r.Verdict == Unknown {
		return "not known whether expected: " + r.By()
	}
	parts := []string{string(r.Verdict) + " (" + r.By() + ")"}
	switch {
	case r.Graceful == nil && r.Verdict == Expected:
		parts = append(parts, "hostler did not stop the pods")
	case r.Graceful == nil:
	case *r.Graceful && r.Killed > 0:
		parts = append(parts, fmt.Sprintf("pods killed: %d", r.Killed))
	case *r.Graceful:
		parts = append(parts, "graceful")
	default:
		parts = append(parts, "not graceful")
	}
	if r.Drain != nil {
		parts = append(parts, "pods were stopped in "+r.Drain.Duration.String())
	}
	if r.Gap != nil {
		parts = append(parts, "this boot started "+r.Gap.Duration.String()+" later by the host's clock")
	}
	text := strings.Join(parts, ", ")
	if r.Error != "" {
		text += ": " + r.Error
	}
	return text
}

// Good reports whether nothing speaks against how the host went down.
func (r Reboot) Good() bool {
	return r.Verdict == Expected && (r.Graceful == nil || *r.Graceful)
}
