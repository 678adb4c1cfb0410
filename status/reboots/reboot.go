package reboots

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/shutdown/journal"
)

// Verdict says whether a reboot was intended.
type Verdict string

// The verdicts.
const (
	Expected   Verdict = "expected"   // the init system shut the host down
	Unexpected Verdict = "unexpected" // not shut down: power loss, kernel panic, or forced reboot
	Unknown    Verdict = "unknown"    // no agent saw the end of the previous boot
)

// Reboot describes how the previous boot ended and this one began.
type Reboot struct {
	BootID  string  `json:"bootID"` // of the kernel in the new boot
	Verdict Verdict `json:"verdict"`
	// Trigger is how the agent learned of the end of the previous boot: from logind or from
	// systemd; empty if it did not.
	Trigger journal.Trigger `json:"trigger,omitempty"`
	Kind    string          `json:"kind,omitempty"` // such as "reboot"; empty if unknown
	// SameKernel means that the kernel kept running: a soft-reboot, or a host that is itself a
	// container.
	SameKernel bool `json:"sameKernel,omitempty"`
	// Graceful is whether all pods had stopped or used up their grace; null if hostler did not stop
	// them.
	Graceful *bool            `json:"graceful"`
	Killed   int              `json:"killed,omitempty"` // number of pods that were killed when their grace period ended
	Drain    *metav1.Duration `json:"drain,omitempty"`  // how long stopping the pods took; absent if that did not finish
	// Gap is the time from the end of the drain to the start of this boot by the wall clock,
	// including boots without an agent. It is absent if that clock is not trusted.
	Gap   *metav1.Duration `json:"gap,omitempty"`
	Error string           `json:"error,omitempty"` // why it was not graceful, or not expected
}

// judge returns how the boot named before ended, given how its agent ended.
func judge(before string, ended ending, o Options) Reboot {
	r := Reboot{BootID: kernel(o.Boot)}
	last := o.Journal.LastBoot()
	switch {
	case last != nil && before != "" && !journal.SameBoot(last.BootID, before):
		last = nil // of an even earlier boot; in the previous one, nobody guarded the shutdown
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
	if before != "" && kernel(before) == kernel(o.Boot) { // only systemd was restarted
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

// By returns who shut the host down, as far as that is certain. logind writes the name of the user
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
		if r.Graceful == nil { // another guard of the shutdown received logind's notification
			by = "by systemd"
		}
	}
	return strings.Trim(r.Kind+" "+by, " ")
}

// String describes the reboot in text.
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

// Good reports whether there is no sign of a problem.
func (r Reboot) Good() bool {
	return r.Verdict == Expected && (r.Graceful == nil || *r.Graceful)
}
