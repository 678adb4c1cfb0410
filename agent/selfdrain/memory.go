package selfdrain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/shutdown/journal"
)

// Instant is a point in time by two clocks.
type Instant struct {
	Boot time.Duration // time since the boot, including suspension; nobody can set this clock
	Wall time.Time     // for people; it may be wrong, and decides nothing
}

// Memory is the state of a Controller, which persists across restarts of the agent. Durations are
// times of the boot-time clock.
type Memory struct {
	Boot   string  `json:"boot"` // boot of these times
	Taints []Taint `json:"taints,omitempty"`
	Lease  *Lease  `json:"lease,omitempty"` // nil if the host has none
	Loss   *Loss   `json:"loss,omitempty"`  // nil while the Lease is renewed
	Drain  *Drain  `json:"drain,omitempty"` // nil while the host is not drained
}

// Taint is a NoExecute taint of the Node.
type Taint struct {
	Key       string        `json:"key"`
	Value     string        `json:"value,omitempty"`
	TimeAdded time.Time     `json:"timeAdded,omitzero"` // zero if the taint has none; by the clock of another host
	Since     time.Duration `json:"since"`              // when this host first saw it in this boot
	Drained   bool          `json:"drained,omitempty"`  // the host was drained for it in this boot
}

// same reports whether both are the same taint. A taint that is removed and set again is a new one.
func (t Taint) same(o Taint) bool { return t.Key == o.Key && t.TimeAdded.Equal(o.TimeAdded) }

// String returns the taint in kubectl's format.
func (t Taint) String() string {
	taint := corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffectNoExecute}
	return taint.ToString()
}

// Lease is the Lease that the host has renewed.
type Lease struct {
	Of       string        `json:"of"` // the control plane and the Node
	Duration time.Duration `json:"duration"`
}

// Loss is a period without a renewal of the Lease.
type Loss struct {
	Since    time.Duration `json:"since"` // the last renewal, or the start of the agent
	Duration time.Duration `json:"duration"`
	Drained  bool          `json:"drained,omitempty"` // the host was drained for it
}

// Drain is a drain that has started but not ended.
type Drain struct {
	Trigger   journal.Trigger `json:"trigger"`
	Cause     string          `json:"cause"`
	StartedAt time.Time       `json:"startedAt"` // start of its record in the journal
}

// restore returns the memory at the start of an agent, from the stored one. Boot-time values of
// another boot are useless, and a wall clock may be wrong. So in another boot, taints and a loss of the
// Lease count from when the agent sees them.
func restore(stored Memory, boot, of string, now time.Duration) Memory {
	m := Memory{Boot: boot, Lease: stored.Lease}
	if m.Lease != nil && m.Lease.Of != of { // the Lease of another Node or control plane
		m.Lease = nil
	}
	if !journal.SameBoot(stored.Boot, boot) || stored.after(now) {
		return m
	}
	m.Taints, m.Drain = stored.Taints, stored.Drain
	if m.Lease != nil {
		m.Loss = stored.Loss
	}
	return m
}

// after reports whether a time of the memory is in the future, so that the memory is from another
// boot.
func (m Memory) after(now time.Duration) bool {
	return m.Loss != nil && m.Loss.Since > now || slices.ContainsFunc(m.Taints, func(t Taint) bool { return t.Since > now })
}

// see records the current taints of the Node. It returns whether the memory changed.
func (m *Memory) see(taints []corev1.Taint, at time.Duration) (changed bool) {
	var seen []Taint
	for _, t := range taints {
		if t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		now := Taint{Key: t.Key, Since: at}
		if t.TimeAdded != nil {
			now.TimeAdded = t.TimeAdded.UTC()
		}
		if i := slices.IndexFunc(m.Taints, now.same); i >= 0 {
			now = m.Taints[i]
		}
		now.Value = t.Value
		seen = append(seen, now)
	}
	changed = !slices.Equal(seen, m.Taints)
	m.Taints = seen
	return changed
}

// renewed records a renewal of the Lease.
func (m *Memory) renewed(of string, duration time.Duration) (changed bool) {
	now := Lease{of, duration}
	changed = m.Loss != nil || m.Lease == nil || *m.Lease != now
	m.Lease, m.Loss = &now, nil
	return changed
}

// lost records that the Lease was not renewed since that time. A host that never had a Lease cannot
// lose it.
func (m *Memory) lost(since time.Duration) (changed bool) {
	if m.Lease == nil || m.Loss != nil {
		return false
	}
	m.Loss = &Loss{Since: since, Duration: m.Lease.Duration}
	return true
}

// leave records that the host no longer has a Lease, because a user deregistered it.
func (m *Memory) leave() { m.Lease, m.Loss = nil, nil }

// drained records that the host was drained for these causes.
func (m *Memory) drained(causes []Cause) {
	m.Drain = nil
	for _, c := range causes {
		if c.Trigger == journal.TriggerLeaseLost && m.Loss != nil {
			loss := *m.Loss // a copy: callers may have the old one
			loss.Drained = true
			m.Loss = &loss
		}
		m.Taints = slices.Clone(m.Taints)
		for i := range m.Taints {
			if c.Trigger == journal.TriggerTaint && m.Taints[i].same(c.Taint) {
				m.Taints[i].Drained = true
			}
		}
	}
}

// equal reports whether both are equal.
func (m Memory) equal(o Memory) bool {
	return m.Boot == o.Boot && slices.Equal(m.Taints, o.Taints) && equal(m.Lease, o.Lease) && equal(m.Loss, o.Loss) && equal(m.Drain, o.Drain)
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
