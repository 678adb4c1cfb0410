package status

import (
	"errors"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/internal/field"
)

// Policy says when the host is under pressure, and for how long the condition stays after that.
type Policy struct {
	MemoryAvailable Threshold // MemAvailable, compared with MemTotal

	NodefsAvailable   Threshold // bytes, node filesystem
	NodefsInodesFree  Threshold
	ImagefsAvailable  Threshold // bytes, each image filesystem
	ImagefsInodesFree Threshold

	PIDAvailable Threshold

	// PSI has at most one limit for each resource. A resource without a limit has no condition.
	PSI []StallLimit

	// TransitionPeriod is how long a pressure condition stays True after pressure was last seen.
	TransitionPeriod time.Duration
}

// DefaultPolicy returns kubelet's hard eviction thresholds, and 5% of PIDs, for which kubelet has
// no threshold.
func DefaultPolicy() Policy {
	return Policy{
		MemoryAvailable:   Threshold{amount: 100 << 20, text: "100Mi"},
		NodefsAvailable:   Threshold{percent: 10, text: "10%"},
		NodefsInodesFree:  Threshold{percent: 5, text: "5%"},
		ImagefsAvailable:  Threshold{percent: 15, text: "15%"},
		ImagefsInodesFree: Threshold{percent: 5, text: "5%"},
		PIDAvailable:      Threshold{percent: 5, text: "5%"},
		TransitionPeriod:  5 * time.Minute,
	}
}

// StallLimit is the share of time that tasks may stall for a resource before that counts as
// contention.
type StallLimit struct {
	Resource  string        // as in probe.Stall
	Kind      string        // "some" or "full", as in probe.Stall
	Window    time.Duration // one of the kernel's averaging windows
	Threshold Threshold     // a percentage of the time
}

// Stalls returns the resources whose stalls must be measured.
func (p Policy) Stalls() []string {
	var names []string
	for _, l := range p.PSI {
		names = append(names, l.Resource)
	}
	return names
}

// Validate checks what ParseThreshold cannot check. Each error is a *field.Error.
func (p Policy) Validate() error {
	var errs []error
	if p.TransitionPeriod < 0 {
		errs = append(errs, field.Errorf("pressure.transitionPeriod", "%s is negative; 0s clears a condition at once", p.TransitionPeriod))
	}
	for i, l := range p.PSI {
		if slices.Contains(p.Stalls()[:i], l.Resource) {
			errs = append(errs, field.Errorf("pressure.psi."+l.Resource, "there are two limits"))
		}
		errs = append(errs, l.validate()...)
	}
	return errors.Join(errs...)
}

func (l StallLimit) validate() []error {
	var errs []error
	fault := func(key, format string, args ...any) {
		errs = append(errs, field.Errorf("pressure.psi."+l.Resource+key, format, args...))
	}
	if _, known := contentions()[l.Resource]; !known {
		fault("", "unknown resource; the kernel reports cpu, memory and io")
	}
	const on = "; the condition needs kind, window and threshold"
	switch {
	case l.Kind == "":
		fault(".kind", "is missing; write some or full"+on)
	case l.Kind != "some" && l.Kind != "full":
		fault(".kind", "%q is neither some nor full", l.Kind)
	case l.Kind == "full" && l.Resource == "cpu":
		fault(".kind", "full has no meaning for the CPUs of a host: the kernel always reports 0; write some")
	}
	switch l.Window {
	case 10 * time.Second, time.Minute, 5 * time.Minute:
	case 0:
		fault(".window", "is missing; write 10s, 60s or 5m"+on)
	default:
		fault(".window", "%s is not a window that the kernel averages over; write 10s, 60s or 5m", l.Window)
	}
	switch t := l.Threshold; {
	case t.text == "":
		fault(".threshold", "is missing; write a percentage, such as 20%%"+on)
	case !t.isPercent():
		fault(".threshold", "%s is not a percentage; write it like %s%%", t, strings.TrimRight(t.text, "%abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	case t.percent <= 0 || t.percent >= 100:
		fault(".threshold", "%s is not between 0%% and 100%%; to disable the condition, remove the section", t)
	}
	return errs
}
