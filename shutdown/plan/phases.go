// Package plan decides which pods stop in which phase of a shutdown, and with how much grace.
//
// It owns the meaning of labels, rules and grace periods. It has only pure functions of pods and
// configuration: it stops nothing and calls no runtime.
package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"hostler.io/hostler/internal/field"
)

// CriticalPriority is the lowest priority of a critical pod: that of Kubernetes'
// system-cluster-critical class.
const CriticalPriority int32 = 2000000000

// Default periods without configuration.
const (
	DefaultGracePeriod             = 30 * time.Second
	DefaultGracePeriodCriticalPods = 10 * time.Second
)

// Margin is what a guard requests from the init system beyond the phases. It is the time to kill
// containers after their grace period, to list pods again, and to write the status.
const Margin = 6 * time.Second

// PhaseSpec is one phase of a shutdown. It has the pods with at least this Priority and below the
// Priority of the next phase. Grace is their common grace period.
type PhaseSpec struct {
	Name     string
	Priority int32
	Grace    time.Duration
}

// PriorityGroup is one configured phase.
type PriorityGroup struct {
	Priority int32
	Grace    time.Duration
}

// Periods is the configured time of a shutdown: two periods, or a list by priority. Nil means not
// configured. A GracePeriod of zero disarms the guard.
type Periods struct {
	GracePeriod             *time.Duration
	GracePeriodCriticalPods *time.Duration
	ByPriority              []PriorityGroup
}

// fault returns an error about one field of the section shutdown, such as "byPriority[1].priority".
func fault(path, format string, args ...any) error {
	return field.Errorf("shutdown."+path, format, args...)
}

// Phases returns the phases in execution order, lowest priority first. It returns none if the
// periods disarm the guard. Errors are *field.Error.
//
// If the period of critical pods is explicitly zero, critical pods stop together with all others,
// in one phase. A phase without time would kill them.
func (p Periods) Phases() ([]PhaseSpec, error) {
	if p.ByPriority != nil {
		return p.byPriority()
	}
	total, critical := DefaultGracePeriod, DefaultGracePeriodCriticalPods
	given := ""
	if p.GracePeriod != nil {
		total = *p.GracePeriod
	}
	if p.GracePeriodCriticalPods != nil {
		critical = *p.GracePeriodCriticalPods
	} else {
		given = ", its default,"
		if total == 0 {
			critical = 0
		}
	}
	if err := period("gracePeriod", total); err != nil {
		return nil, err
	}
	if err := period("gracePeriodCriticalPods", critical); err != nil {
		return nil, err
	}
	switch {
	case total == 0 && critical == 0:
		return nil, nil
	case critical >= total:
		return nil, fault("gracePeriodCriticalPods", "%v%s is part of gracePeriod (%v) and must be shorter", critical, given, total)
	case critical == 0:
		return []PhaseSpec{{Name: "regular", Grace: total}}, nil
	}
	if err := period("gracePeriod", total-critical); err != nil {
		return nil, fault("gracePeriod", "leaves regular pods %v besides gracePeriodCriticalPods (%v); runtimes need at least one second", total-critical, critical)
	}
	return []PhaseSpec{
		{Name: "regular", Grace: total - critical},
		{Name: "critical", Priority: CriticalPriority, Grace: critical},
	}, nil
}

// Defaults returns the phases without configuration.
func Defaults() []PhaseSpec {
	phases, err := Periods{}.Phases()
	if err != nil {
		panic(err) // the default constants are invalid
	}
	return phases
}

func (p Periods) byPriority() ([]PhaseSpec, error) {
	if p.GracePeriod != nil || p.GracePeriodCriticalPods != nil {
		return nil, fault("byPriority", "cannot be combined with gracePeriod and gracePeriodCriticalPods: set one or the other")
	}
	phases := make([]PhaseSpec, 0, len(p.ByPriority))
	seen := make(map[int32]int, len(p.ByPriority))
	var total time.Duration
	for i, g := range p.ByPriority {
		if err := period(fmt.Sprintf("byPriority[%d].gracePeriod", i), g.Grace); err != nil {
			return nil, err
		}
		if first, ok := seen[g.Priority]; ok {
			return nil, fault(fmt.Sprintf("byPriority[%d].priority", i), "%d is already used in byPriority[%d]", g.Priority, first)
		}
		seen[g.Priority] = i
		if g.Grace > math.MaxInt64-Margin-total {
			return nil, fault(fmt.Sprintf("byPriority[%d].gracePeriod", i), "the sum of all periods is too long")
		}
		total += g.Grace
		phases = append(phases, PhaseSpec{Name: fmt.Sprintf("priority-%d", g.Priority), Priority: g.Priority, Grace: g.Grace})
	}
	if total == 0 {
		return nil, nil
	}
	slices.SortFunc(phases, func(a, b PhaseSpec) int { return cmp.Compare(a.Priority, b.Priority) })
	return phases, nil
}

// period validates one duration: zero, or at least one second, because runtimes use whole seconds.
func period(path string, d time.Duration) error {
	switch {
	case d < 0:
		return fault(path, "%v is negative", d)
	case d > 0 && d < time.Second:
		return fault(path, "%v is shorter than one second, the smallest grace period of runtimes", d)
	case d > math.MaxInt64-Margin:
		return fault(path, "%v is too long", d)
	}
	return nil
}

// Check validates phases that were not created by Phases.
func Check(phases []PhaseSpec) error {
	var total time.Duration
	for i, p := range phases {
		if p.Grace < 0 || p.Grace > math.MaxInt64-Margin-total {
			return fmt.Errorf("shutdown phase %q: grace period %v is out of range", p.Name, p.Grace)
		}
		total += p.Grace
		if i > 0 && p.Priority <= phases[i-1].Priority {
			return fmt.Errorf("shutdown phase %q: priority %d is not above %d", p.Name, p.Priority, phases[i-1].Priority)
		}
	}
	return nil
}

// Total returns the sum of all phases.
func Total(phases []PhaseSpec) time.Duration {
	var total time.Duration
	for _, p := range phases {
		total += p.Grace
	}
	return total
}

// Untimed returns the names of the phases with a configured time of zero. Their pods are killed at
// once, unless earlier phases leave time.
func Untimed(phases []PhaseSpec) (names []string) {
	for _, p := range phases {
		if p.Grace == 0 {
			names = append(names, p.Name)
		}
	}
	return names
}

// Reserve returns how much of granted is not used for phases: Margin, or a quarter if little is
// granted.
func Reserve(granted time.Duration) time.Duration { return min(Margin, granted/4) }

// Fit shortens the phases so that they fit into granted, Margin included. The highest priority gets
// time first, so that critical pods keep their share. But each phase gets a second first if
// possible, because without time its pods would be killed without a stop signal. If granted is
// zero, the limit is unknown, and nothing is shortened.
func Fit(phases []PhaseSpec, granted time.Duration) []PhaseSpec {
	fitted := slices.Clone(phases)
	if granted <= 0 {
		return fitted
	}
	left := granted - Reserve(granted)
	for i := range fitted {
		fitted[i].Grace = 0
	}
	for _, atMost := range []time.Duration{time.Second, math.MaxInt64} {
		for i := len(fitted) - 1; i >= 0; i-- {
			more := min(phases[i].Grace-fitted[i].Grace, atMost, left)
			fitted[i].Grace += more
			left -= more
		}
	}
	return fitted
}

// phaseOf returns the index of the phase with the greatest priority that is not above the given
// one. Pods below the lowest phase belong to it.
func phaseOf(phases []PhaseSpec, priority int32) int {
	i, found := slices.BinarySearchFunc(phases, priority, func(p PhaseSpec, want int32) int {
		return cmp.Compare(p.Priority, want)
	})
	if found {
		return i
	}
	return max(i-1, 0)
}
